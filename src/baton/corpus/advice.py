"""From four answers about a team to a credit unit, an estimator and a recipe.

The four questions are the survey's (arXiv 2605.02801); which recipe answers them is Baton's. Invariant: every
combination of answers has exactly one recommendation, and each of its reasons names the answer it rests on.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from msgspec import Struct

Roles = Literal["alike", "heterogeneous", "debate"]
ROLES: tuple[str, ...] = get_args(Roles)

QUESTIONS: dict[str, str] = {
    "dynamic": "Do agents come and go while the team works (spawned, despawned)?",
    "bottleneck": "Is the orchestrator where it is won or lost, rather than the agents under it?",
    "long": "Are traces so long that one reward for all drowns (more than about 25 turns)?",
    "roles": "Are the agents alike, heterogeneous, or in a debate?",
}


class AdviceAnswers(Struct, frozen=True, kw_only=True):
    """What there is to know about a team before choosing how to credit it."""

    dynamic: bool
    bottleneck: bool
    long: bool
    roles: Roles


class Advice(Struct, frozen=True, kw_only=True):
    """A recommendation."""

    unit: str
    estimator: str
    """As `baton credit --estimator` takes it."""
    recipe: str
    reasons: tuple[str, ...]
    instead: dict[str, str]
    """Other recipe -> when it is the better one."""


class _Rule(NamedTuple):
    """One row of the table: to whom it applies, what it recommends, and why."""

    when: dict[str, object]
    """Question -> the answer it is for; questions left out may be answered either way."""
    unit: str
    estimator: str
    recipe: str
    reasons: tuple[str, ...]
    """In order. "{length}" stands for what is said of the traces' length, and what follows it goes on from there."""
    instead: dict[str, str]


_DECIDES = (
    "The orchestrator decides the outcome, so its decisions carry the credit and the rest can stay frozen."
)
_ARGUED = "In a debate it is messages that move the outcome, so they carry the credit."
_CHANGING = "Agents come and go, so a critic or mixer with a place for each agent (VDN, QMIX) does not fit"
_ANYBODY = "Agents come and go, which credit on messages does not mind."
_LENGTH = "{length}"
_RULES = (
    _Rule(
        {"bottleneck": True, "dynamic": True}, "orchestrator", "spawn-fork", "spawn",
        (
            _DECIDES,
            "Agents come and go: what a spawn brought is not identifiable from traces that spawned, so both "
            "branches are run from the same prefix.",
            _LENGTH + "a fork compares two ends of one prefix, which length does not dilute.",
        ),
        {
            "parl": "where forks cost too much and a reward for parallel work may be annealed away",
            "stop": "where the team's trouble is that it ends too early or too late",
        },
    ),
    _Rule(
        {"bottleneck": True, "long": True}, "orchestrator", "coma", "coma",
        (
            _DECIDES,
            "The agents stay the same, so the options of a decision do too, and a critic can learn them.",
            _LENGTH + "a counterfactual baseline for each decision does not dilute with length.",
        ),
        {"puppeteer": "where there is no critic and the price of a step is known"},
    ),
    _Rule(
        {"bottleneck": True}, "orchestrator", "reinforce-cost", "puppeteer",
        (
            _DECIDES,
            "The agents stay the same: to orchestrate is to pick the next one, which REINFORCE with a price "
            "on every step trains.",
            _LENGTH,
        ),
        {"coma": "where the probabilities of all options are recorded and a critic can be trained"},
    ),
    _Rule(
        {"roles": "debate", "long": True}, "message", "message-replay", "message",
        (_ARGUED, _LENGTH + "replay re-runs only what depends on a message, whatever the length.", _ANYBODY),
        {"maporl": "where a verifier scores every answer and nothing can be run again"},
    ),
    _Rule(
        {"roles": "debate"}, "message", "siblings", "c3",
        (
            _ARGUED,
            _LENGTH + "several messages from one context, each continued to the end, are affordable.",
            _ANYBODY,
        ),
        {
            "maporl": "where a verifier scores every answer",
            "comas": "where there is no label and agents have to judge each other",
        },
    ),
    _Rule(
        {"dynamic": True, "roles": "heterogeneous", "long": True}, "turn", "branch-scope", "fold-grpo",
        (
            f"{_CHANGING}; a branch is credited by what it did within its scope.",
            _LENGTH + "so credit goes on turns, not on whole rollouts.",
            "Roles differ, and a branch is judged by its own task.",
        ),
        {"m-grpo": "where every sub-agent has a judge of its own"},
    ),
    _Rule(
        {"dynamic": True, "roles": "heterogeneous"}, "role", "role-group", "m-grpo",
        (
            f"{_CHANGING}; sub-trajectories of one role are compared, however many there are.",
            "Roles differ: a main agent and a sub-agent compared with each other would share a wrong mean.",
            _LENGTH,
        ),
        {"sharp": "where a run without each agent can be afforded"},
    ),
    _Rule(
        {"dynamic": True, "long": True}, "agent", "shapley", "shapley",
        (
            f"{_CHANGING}; Shapley values on the spawn forest need no fixed set.",
            _LENGTH + "and who rides free is told apart by what the team loses without it.",
            "Agents are alike, so coalitions count by size: n + 1 of them instead of 2^n.",
        ),
        {"wideseek-r1": "where nothing can be run again"},
    ),
    _Rule(
        {"dynamic": True}, "team", "group", "wideseek-r1",
        (
            f"{_CHANGING}; the team's advantage goes to everyone who was there.",
            "Agents are alike, so the loss is averaged over agents and nobody gains by being many.",
            _LENGTH,
        ),
        {"shapley": "where free riding shows (`baton reward --monitor`) and forks are affordable"},
    ),
    _Rule(
        {"roles": "heterogeneous", "long": True}, "turn", "turn-group", "at-grpo",
        (
            "Roles differ, so each agent is compared with itself.",
            _LENGTH + "so each turn is, too: samples from the same state, agent and turn.",
            "The agents stay the same, so a turn of one rollout has its like in the others.",
        ),
        {"dr-mas": "where several samples from one state are too dear"},
    ),
    _Rule(
        {"roles": "heterogeneous"}, "agent", "agent-group", "dr-mas",
        (
            "Roles differ, so one baseline for all is wrong for each; every agent gets its own mean and deviation.",
            "The agents stay the same, so each has rollouts to be compared with.",
            _LENGTH,
        ),
        {"ccpo": "where a run without one of the agents can be afforded"},
    ),
    _Rule(
        {"long": True}, "turn", "gae", "mappo",
        (
            "Agents are alike and stay the same, so one critic over the whole trace serves all.",
            _LENGTH + "and a critic brings the horizon down to a few turns.",
        ),
        {"at-grpo": "where no critic can be trained but states can be sampled from again"},
    ),
    _Rule(
        {}, "team", "mean", "magrpo",
        (
            "Agents are alike and stay the same, and nothing hangs on one of them: the team's reward less its mean "
            "is enough.",
            _LENGTH,
        ),
        {"dr-mas": "where agents turn out to differ in how often they act or how well"},
    ),
)  # fmt: skip
"""From the most particular to the least: the first whose answers fit is the recommendation."""


def advise(answers: AdviceAnswers) -> Advice:
    """The recommendation for these answers."""
    rule = next(r for r in _RULES if all(getattr(answers, name) == want for name, want in r.when.items()))
    reasons = (r for r in rule.reasons if answers.dynamic or r != _ANYBODY)
    return Advice(
        unit=rule.unit,
        estimator=rule.estimator,
        recipe=rule.recipe,
        reasons=tuple(
            _length(answers, r.removeprefix(_LENGTH)) if r.startswith(_LENGTH) else r for r in reasons
        ),
        instead=rule.instead,
    )


def _length(answers: AdviceAnswers, goes_on: str) -> str:
    if answers.long:
        return f"Traces are long, and one reward spread over all turns drowns in noise; {goes_on}"
    return "Traces are short, so a reward at the end still tells" + (f"; {goes_on}" if goes_on else ".")
