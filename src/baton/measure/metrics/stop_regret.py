"""O5, when to stop: premature stops, what overrunning cost, stop regret, returned-round regret.

A round is a moment at which the team had an answer at hand: the leading agent's aggregates, and its stop.
Net value of stopping at round k: score_k - price * tokens_k.
  premature        some later round would have been better; needs rounds beyond the stop, from a replay in
                   which the stop does not take effect
  overrun          tokens spent after the earliest best round up to the stop
  stop regret      best net value of any known round, less that of the round stopped at
  returned regret  best score up to the stop, less the score of the answer given
All four look back: the best moment of a path is known only after it, and no policy can be asked to hit it.
They rank teams; they are no labels to train on (baton.credit.estimators.stop_value is for that).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from baton.errors import BatonError
from baton.measure.figure import Figure, NotMeasured, not_measured, proportion, told
from baton.measure.measured import MeasuredTrace
from baton.measure.metric import metric
from baton.team.forks import Rerun
from baton.team.intervene import Drop
from baton.trace.graph.lineage import NO_EFFECT
from baton.trace.outcome import plain


class Rounds(Struct, frozen=True, kw_only=True):
    """The answers a team had at hand, in order."""

    scores: tuple[float, ...]
    tokens: tuple[float, ...]
    """Spent up to each round; does not fall."""
    stopped: int
    """Index of the round at which the team stopped. Later ones are from a replay that went on."""
    returned: int
    """Whose answer it gave."""
    forced: bool = False
    """A limit stopped it: nobody's choice."""

    def net(self, k: int, price: float) -> float:
        return self.scores[k] - price * self.tokens[k]


def rounds_of(reading: MeasuredTrace) -> Rounds:
    """The rounds of a trace, scored by the verifier."""
    final, root = reading.final, reading.lineage.root
    spent = 0.0
    if all(event.tokens is None for event in reading.trace.events):
        raise NotMeasured("no event's tokens were counted")
    scores: list[float] = []
    tokens: list[float] = []
    texts: list[str] = []
    for event in reading.events:
        spent += event.tokens or 0
        fused = event.type == "aggregate" and event.agent == root and event.status not in NO_EFFECT
        if not fused and event.id != final.id:
            continue
        text = reading.said(event) if event.content_ref is not None else ""
        if event.id == final.id and plain(text) in texts:
            break  # the answer is that of an earlier round; to say so is no round of its own
        scores.append(reading.verified(text))
        tokens.append(spent)
        texts.append(plain(text))
        if event.id == final.id:
            break
    returned = max(k for k, text in enumerate(texts) if text == plain(reading.answer))
    stopped = len(scores) - 1
    tokens[stopped] = max(tokens[stopped], _until(reading, final.seq))
    return Rounds(
        scores=tuple(scores), tokens=tuple(tokens), stopped=stopped, returned=returned,
        forced=final.status == "forced",
    )  # fmt: skip


def _until(reading: MeasuredTrace, seq: int) -> float:
    return float(sum(event.tokens or 0 for event in reading.events if event.seq <= seq))


def going_on(reading: MeasuredTrace, rerun: Rerun, replicate: int = 0) -> Rounds:
    """The rounds with those that come when the stop does not take effect."""
    rounds = rounds_of(reading)
    if rounds.forced:
        raise NotMeasured("a limit stopped the team, so it cannot go on")
    on = MeasuredTrace(rerun(reading.trace, [Drop(reading.final.id)], replicate), reading.gold)
    beyond = rounds_of(on)
    after = rounds.tokens[-1]
    later = [(s, t) for s, t in zip(beyond.scores, beyond.tokens, strict=True) if t > after]
    return structs.replace(
        rounds,
        scores=(*rounds.scores, *(score for score, _ in later)),
        tokens=(*rounds.tokens, *(spent for _, spent in later)),
    )


def premature(rounds: Rounds, price: float = 0.0) -> bool:
    """Whether going on would have been better."""
    later = range(rounds.stopped + 1, len(rounds.scores))
    if not later:
        raise NotMeasured("what going on would have brought is not known: it needs a replay past the stop")
    return max(rounds.net(k, price) for k in later) > rounds.net(rounds.stopped, price)


def premature_rate(all_rounds: Iterable[Rounds | Figure], price: float = 0.0) -> Figure:
    """Stops that came too early, of those that somebody chose and whose continuation is known."""

    def too_early(rounds: Rounds | Figure) -> bool:
        if isinstance(rounds, Figure):
            raise NotMeasured(rounds.why_not)
        if rounds.forced:
            raise NotMeasured("a limit stopped the team: nobody's choice")
        return premature(rounds, price)

    found, why_not = told(all_rounds, too_early)
    return proportion(sum(found), len(found)) if found else why_not


def overrun_tokens(rounds: Rounds, price: float = 0.0) -> float:
    """Tokens spent after the earliest best round, up to the stop."""
    best = max(range(rounds.stopped + 1), key=lambda k: (rounds.net(k, price), -k))
    return rounds.tokens[rounds.stopped] - rounds.tokens[best]


def stop_regret(rounds: Rounds, price: float = 0.0) -> float:
    """Net value given away by stopping when it stopped."""
    best = max(rounds.net(k, price) for k in range(len(rounds.scores)))
    return best - rounds.net(rounds.stopped, price)


def returned_regret(rounds: Rounds) -> float:
    """Score given away by answering with another round than the best so far."""
    return max(rounds.scores[: rounds.stopped + 1]) - rounds.scores[rounds.returned]


def try_going_on(reading: MeasuredTrace, rerun: Rerun | None) -> Rounds | Figure:
    """The rounds of a trace, run on past its stop where a replay can be had; a refusal is a reason."""
    try:
        return rounds_of(reading) if rerun is None else going_on(reading, rerun)
    except BatonError as error:
        return not_measured(str(error))


@metric("overrun_tokens", "O5", unit="tokens")
def overrun(reading: MeasuredTrace) -> float:
    """Tokens spent after the earliest best answer was at hand."""
    return overrun_tokens(rounds_of(reading))


@metric("stop_regret", "O5")
def regret(reading: MeasuredTrace) -> float:
    """Score given away by stopping when it stopped, over the rounds there were."""
    return stop_regret(rounds_of(reading))


@metric("returned_round_regret", "O5")
def returned(reading: MeasuredTrace) -> float:
    """Score given away by answering with another round than the best."""
    return returned_regret(rounds_of(reading))
