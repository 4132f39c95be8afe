"""From four answers about a team to a credit unit, an estimator and a recipe.

The four questions are the survey's (arXiv 2605.02801); which recipe answers them is Baton's. Invariant: every
combination of answers has exactly one recommendation, and each of its reasons names the answer it rests on.
"""

from __future__ import annotations

from typing import Literal, get_args

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


def advise(answers: AdviceAnswers) -> Advice:
    """The recommendation for these answers."""
    if answers.bottleneck:
        return _orchestrator(answers)
    if answers.roles == "debate":
        return _debate(answers)
    return _changing(answers) if answers.dynamic else _fixed(answers)


def _orchestrator(answers: AdviceAnswers) -> Advice:
    decides = "The orchestrator decides the outcome, so its decisions carry the credit and the rest can stay frozen."
    if answers.dynamic:
        return Advice(
            unit="orchestrator",
            estimator="spawn-fork",
            recipe="spawn",
            reasons=(
                decides,
                "Agents come and go: what a spawn brought is not identifiable from traces that spawned, so both "
                "branches are run from the same prefix.",
                *_length(answers, "a fork compares two ends of one prefix, which length does not dilute."),
            ),
            instead={
                "parl": "where forks cost too much and a reward for parallel work may be annealed away",
                "stop": "where the team's trouble is that it ends too early or too late",
            },
        )
    if answers.long:
        return Advice(
            unit="orchestrator",
            estimator="coma",
            recipe="coma",
            reasons=(
                decides,
                "The agents stay the same, so the options of a decision do too, and a critic can learn them.",
                *_length(answers, "a counterfactual baseline for each decision does not dilute with length."),
            ),
            instead={"puppeteer": "where there is no critic and the price of a step is known"},
        )
    return Advice(
        unit="orchestrator",
        estimator="reinforce-cost",
        recipe="puppeteer",
        reasons=(
            decides,
            "The agents stay the same: to orchestrate is to pick the next one, which REINFORCE with a price "
            "on every step trains.",
            *_length(answers, ""),
        ),
        instead={"coma": "where the probabilities of all options are recorded and a critic can be trained"},
    )


def _debate(answers: AdviceAnswers) -> Advice:
    argued = "In a debate it is messages that move the outcome, so they carry the credit."
    anybody = "Agents come and go, which credit on messages does not mind." if answers.dynamic else ""
    if answers.long:
        return Advice(
            unit="message",
            estimator="message-replay",
            recipe="message",
            reasons=(
                argued,
                *_length(answers, "replay re-runs only what depends on a message, whatever the length."),
                *([anybody] if anybody else []),
            ),
            instead={"maporl": "where a verifier scores every answer and nothing can be run again"},
        )
    return Advice(
        unit="message",
        estimator="siblings",
        recipe="c3",
        reasons=(
            argued,
            *_length(
                answers, "several messages from one context, each continued to the end, are affordable."
            ),
            *([anybody] if anybody else []),
        ),
        instead={
            "maporl": "where a verifier scores every answer",
            "comas": "where there is no label and agents have to judge each other",
        },
    )


def _changing(answers: AdviceAnswers) -> Advice:
    changing = "Agents come and go, so a critic or mixer with a place for each agent (VDN, QMIX) does not fit"
    if answers.roles == "heterogeneous" and answers.long:
        return Advice(
            unit="turn",
            estimator="branch-scope",
            recipe="fold-grpo",
            reasons=(
                f"{changing}; a branch is credited by what it did within its scope.",
                *_length(answers, "so credit goes on turns, not on whole rollouts."),
                "Roles differ, and a branch is judged by its own task.",
            ),
            instead={"m-grpo": "where every sub-agent has a judge of its own"},
        )
    if answers.roles == "heterogeneous":
        return Advice(
            unit="role",
            estimator="role-group",
            recipe="m-grpo",
            reasons=(
                f"{changing}; sub-trajectories of one role are compared, however many there are.",
                "Roles differ: a main agent and a sub-agent compared with each other would share a wrong mean.",
                *_length(answers, ""),
            ),
            instead={"sharp": "where a run without each agent can be afforded"},
        )
    if answers.long:
        return Advice(
            unit="agent",
            estimator="shapley",
            recipe="shapley",
            reasons=(
                f"{changing}; Shapley values on the spawn forest need no fixed set.",
                *_length(answers, "and who rides free is told apart by what the team loses without it."),
                "Agents are alike, so coalitions count by size: n + 1 of them instead of 2^n.",
            ),
            instead={"wideseek-r1": "where nothing can be run again"},
        )
    return Advice(
        unit="team",
        estimator="group",
        recipe="wideseek-r1",
        reasons=(
            f"{changing}; the team's advantage goes to everyone who was there.",
            "Agents are alike, so the loss is averaged over agents and nobody gains by being many.",
            *_length(answers, ""),
        ),
        instead={"shapley": "where free riding shows (`baton reward --monitor`) and forks are affordable"},
    )


def _fixed(answers: AdviceAnswers) -> Advice:
    if answers.roles == "heterogeneous":
        if answers.long:
            return Advice(
                unit="turn",
                estimator="turn-group",
                recipe="at-grpo",
                reasons=(
                    "Roles differ, so each agent is compared with itself.",
                    *_length(answers, "so each turn is, too: samples from the same state, agent and turn."),
                    "The agents stay the same, so a turn of one rollout has its like in the others.",
                ),
                instead={"dr-mas": "where several samples from one state are too dear"},
            )
        return Advice(
            unit="agent",
            estimator="agent-group",
            recipe="dr-mas",
            reasons=(
                "Roles differ, so one baseline for all is wrong for each; every agent gets its own mean and "
                "deviation.",
                "The agents stay the same, so each has rollouts to be compared with.",
                *_length(answers, ""),
            ),
            instead={"ccpo": "where a run without one of the agents can be afforded"},
        )
    if answers.long:
        return Advice(
            unit="turn",
            estimator="gae",
            recipe="mappo",
            reasons=(
                "Agents are alike and stay the same, so one critic over the whole trace serves all.",
                *_length(answers, "and a critic brings the horizon down to a few turns."),
            ),
            instead={"at-grpo": "where no critic can be trained but states can be sampled from again"},
        )
    return Advice(
        unit="team",
        estimator="mean",
        recipe="magrpo",
        reasons=(
            "Agents are alike and stay the same, and nothing hangs on one of them: the team's reward less its mean "
            "is enough.",
            *_length(answers, ""),
        ),
        instead={"dr-mas": "where agents turn out to differ in how often they act or how well"},
    )


def _length(answers: AdviceAnswers, long: str) -> tuple[str, ...]:
    if answers.long:
        return (f"Traces are long, and one reward spread over all turns drowns in noise; {long}",)
    return ("Traces are short, so a reward at the end still tells" + (f"; {long}" if long else "."),)
