"""How loud the signal of one worker's skill is in a step's gradient: derived for each credit, and measured on traces.

A worker that reads the fact is right with chance p, one that does not keeps quiet with chance q; each report is one or
the other, independently. Let x_k be 1 where report k is as it should be and u_k = x_k - E x_k, the derivative of its
log-probability by a skill that moves the two log-odds alike. The team's return is R = (x_h + mean of the others' x)/2.
What credit A_k makes of the skill's gradient is g = sum_k A_k u_k over a rollout. Every credit here has the same mean,
S = (a + c)/2 with a = p(1 - p), c = q(1 - q); they differ in variance, and in what a rollout costs:

    uniform   A_k = R less the mean of the others of a group of G, one number for all
    agent     A_k = R less R without worker k (who then counts as quiet): nothing is said again
    message   A_k = R less the mean of K other draws of report k, for every report: 1 + K times the tokens
    fork      the same for one report in n, drawn by chance, and n times as much: 1 + K/n times the tokens

Per rollout, X = u_h, m4(v) = v(1 - 3v) the fourth moment of a coin of variance v, m = n - 1:

    agent     4 Var = p(1 - p)^3 + q^3(1 - q)/m
    message   4 Var = m4(a) + a^2/K - a^2 + (m4(c) + c^2/K - c^2)/m
    fork      4 Var = n(m4(a) + a^2/K) - a^2 + (n(m4(c) + c^2/K) - c^2)/m
    uniform   4 Var = V + (E Z^2 E U^2 + (a + c)^2)/(G - 1)
              Z = X + mean of the others' u, U = X + their sum, E Z^2 = a + c/m, E U^2 = a + m c
              V = m4(a) + (n^2 + 2m) a c/m + m4(c)/m + 3 c^2 (m - 1)/m - (a + c)^2

The signal to noise of the mean over the rollouts that T tokens buy is S sqrt(T/tokens of a rollout)/sqrt(Var). For
large n that is in proportion to 1/n for uniform and fork, and to 1/sqrt(n) for agent and message (one needle in n).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

CREDITS = ("uniform", "agent", "message", "fork")
DRAWS = {"message": 1, "fork": 3}
"""K, other draws of a report that is replayed."""
GROUP = 4


def variance(credit: str, n: int, p: float, q: float) -> float:
    """Of the skill's gradient over one rollout."""
    a, c, m = p * (1 - p), q * (1 - q), n - 1
    a4, c4 = a * (1 - 3 * a), c * (1 - 3 * c)
    if credit == "agent":
        return (p * (1 - p) ** 3 + q**3 * (1 - q) / m) / 4
    if credit == "uniform":
        own = a4 + (n * n + 2 * m) * a * c / m + c4 / m + 3 * c * c * (m - 1) / m - (a + c) ** 2
        return (own + ((a + c / m) * (a + m * c) + (a + c) ** 2) / (GROUP - 1)) / 4
    k = DRAWS[credit]
    times = n if credit == "fork" else 1
    return (times * (a4 + a * a / k) - a * a + (times * (c4 + c * c / k) - c * c) / m) / 4


def reports(credit: str, n: int) -> float:
    """How many reports a rollout costs, replayed ones charged."""
    return n + {"message": n * DRAWS["message"], "fork": DRAWS["fork"]}.get(credit, 0)


def predicted(credit: str, n: int, p: float, q: float, num_reports: float) -> float:
    """Signal to noise of the gradient that so many reports buy."""
    signal = (p * (1 - p) + q * (1 - q)) / 2
    return signal * math.sqrt(num_reports / reports(credit, n) / variance(credit, n, p, q))


def gradients(task: Any, group: Sequence[Any], p: float, q: float) -> float:
    """The skill's gradient of a group, as the credits on its traces have it."""
    from baton.tasks.needle import QUIET, found_in

    total = 0.0
    for trace in group:
        told = trace.header.meta["train"]
        instance = task.instance(told["instance"], told["split"])
        credit = credits_of(trace)
        for event in trace.events:
            if event.type != "return" or event.call is None:
                continue
            worth = credit.get(event.agent, 0.0) + credit.get(event.id, 0.0) + credit.get("team", 0.0)
            asked = json.loads(trace.text(trace.call_by_id[event.call].prompt_ref))[-1]["text"]
            right = task.judge(instance, asked, trace.text(event.content_ref) or "")
            holds = found_in(asked) != QUIET
            total += worth * (right - (p if holds else q))
    return total


def credits_of(trace: Any) -> dict[str, float]:
    """Target -> credit, the team's as `team`; prices of invalid answers are none."""
    return {
        "team" if each.unit == "team" else each.target: each.value
        for each in trace.credits
        if each.estimator != "invalid"
    }
