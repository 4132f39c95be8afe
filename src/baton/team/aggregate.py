"""Aggregators: ways to make one result of what several agents said. Choices, not wiring.

Votes are exact for independent voters: a claim that is right with probability p, and otherwise
equally often any of the K - 1 wrong answers, weighs ln(p (K - 1) / (1 - p)) (Nitzan and Paroush
1982; Ben-Yashar and Paroush 2001). Numbers are fused by the best linear unbiased estimate,
w ~ Sigma^-1 1 (Bates and Granger 1969). Ties go to the answer that arrived first. `summary` only
writes the prompt: the runtime asks a model. `merge` puts together what several agents found: every leaf of every part
is in the result or in the list of conflicts, and merging a part with itself changes nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from baton.errors import BatonError, UsageError, nearest
from baton.registry import is_reference, knows, resolve
from baton.team.hints import hint_for_agent
from baton.team.surface.parsing import decode_json, encode_json
from baton.trace.outcome import plain


def merge(
    parts: Sequence[tuple[str, str]],
) -> tuple[str, Literal["object", "list", "lines"], list[dict[str, Any]]]:
    """Merge (agent, text) in order: the text, how the parts were read, and what did not fit.

    JSON objects are merged key by key and inwards, JSON lists are joined, anything else is joined line by line; what
    is there already is not repeated.
    """
    values = [_decoded(text) for _, text in parts]
    conflicts: list[dict[str, Any]] = []
    if all(isinstance(value, dict) for value in values):
        merged: dict[str, Any] = {}
        for (agent, _), value in zip(parts, values, strict=True):
            _into(merged, value, "", agent, conflicts)
        return encode_json(merged), "object", conflicts
    if all(isinstance(value, list) for value in values):
        return encode_json(_joined([item for value in values for item in value])), "list", conflicts
    lines = dict.fromkeys(line.rstrip() for _, text in parts for line in text.splitlines() if line.strip())
    return "\n".join(lines), "lines", conflicts


def _into(
    merged: dict[str, Any], new: dict[str, Any], path: str, agent: str, conflicts: list[dict[str, Any]]
) -> None:
    for key, value in new.items():
        if key not in merged:
            # A copy: what is merged into it later must not reach back into the part it came from.
            merged[key] = value
            if isinstance(value, dict):
                merged[key] = {}
                _into(merged[key], value, f"{path}/{key}", agent, conflicts)
            elif isinstance(value, list):
                merged[key] = _joined(value)
            continue
        kept = merged[key]
        if isinstance(kept, dict) and isinstance(value, dict):
            _into(kept, value, f"{path}/{key}", agent, conflicts)
        elif isinstance(kept, list) and isinstance(value, list):
            merged[key] = _joined(kept + value)
        elif encode_json(kept) != encode_json(value):
            conflicts.append({"path": f"{path}/{key}", "agent": agent, "kept": kept, "dropped": value})


def _joined(items: list[Any]) -> list[Any]:
    """Without repeats, in order. By their JSON: to Python, 1 and True are the same."""
    seen: dict[str, Any] = {}
    for item in items:
        seen.setdefault(encode_json(item), item)
    return list(seen.values())


def _decoded(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return None


class AggregateError(BatonError):
    """Claims that this method cannot fuse. Recorded in the trace; the agent sees the message."""


class Claim(Struct, frozen=True):
    """What one agent returned."""

    agent: str
    text: str
    confidence: float | None = None
    """Probability that the text is right; None: not known."""
    weight: float | None = None
    """Precision (one over variance) of the number the text gives; None: not known."""


class Fused(Struct, frozen=True):
    """One result of many claims."""

    text: str
    weights: tuple[float, ...]
    """Share of voice of each claim, in order. Below zero: the claim counted against what it says."""
    detail: dict[str, Any]


class Aggregator(Protocol):
    """A way to fuse claims."""

    @property
    def name(self) -> str: ...
    @property
    def pure(self) -> bool:
        """Same claims, same result. False: a model has to be asked."""
        ...

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = ...) -> Fused:
        """Fuse claims in order of arrival, or raise AggregateError."""
        ...


_NO_PARAMS: Mapping[str, Any] = MappingProxyType({})
_P = TypeVar("_P", bound=Struct)


class _NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _VoteParams(Struct, frozen=True, forbid_unknown_fields=True):
    normalise: bool = False
    """Let case, space and closing punctuation not tell answers apart."""


class _LogOddsParams(Struct, frozen=True, forbid_unknown_fields=True):
    normalise: bool = False
    num_classes: int | None = None
    """How many answers are possible; None: as many as were given, and at least two."""
    accuracies: dict[str, float] = {}
    """Agent -> probability that it is right; goes before the claim's own confidence."""
    surest: float = 0.99
    """How sure a claim counts as, at most, and 1 - this at least: one who claims 1 does not outvote everybody."""


class _CovarianceParams(Struct, frozen=True, forbid_unknown_fields=True):
    covariance: list[list[float]] | None = None
    """Of the agents' errors."""
    agents: list[str] | None = None
    """Who the rows of `covariance` stand for; None: the claims, in order."""
    errors: dict[str, list[float]] = {}
    """Agent -> its past errors, from which a diagonal covariance is estimated."""


class _SummaryParams(Struct, frozen=True, forbid_unknown_fields=True):
    instruction: str = "Combine the results below into one. Keep what they agree on; say where they disagree."


class First:
    """The claim that arrived first."""

    name: ClassVar[str] = "first"
    pure: ClassVar[bool] = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`."""
        _check(self.name, claims, params, _NoParams)
        return Fused(claims[0].text, (1.0, *(0.0 for _ in claims[1:])), {"agent": claims[0].agent})


class Majority:
    """The answer given most often."""

    name: ClassVar[str] = "majority"
    pure: ClassVar[bool] = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`."""
        settings = _check(self.name, claims, params, _VoteParams)
        answers = _answers(claims, settings.normalise)
        votes = {claims[members[0]].text: len(members) for members in answers.values()}
        text = max(votes, key=votes.__getitem__)  # the first of equals, in order of arrival
        return Fused(text, (1 / len(claims),) * len(claims), {"votes": votes})


class LogOdds:
    """The answer that is most probable, given how often each agent is right."""

    name: ClassVar[str] = "log_odds"
    pure: ClassVar[bool] = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`."""
        settings = _check(self.name, claims, params, _LogOddsParams)
        answers = _answers(claims, settings.normalise)
        num_classes = max(2, len(answers)) if settings.num_classes is None else settings.num_classes
        if num_classes < max(2, len(answers)):
            raise AggregateError(
                f"log_odds: num_classes is {num_classes} and there are {len(answers)} different answers; "
                "expected at least as many classes, and at least 2."
            )
        if not 0.5 < settings.surest < 1:
            raise AggregateError(f"log_odds: surest is {settings.surest}; expected above 0.5 and below 1.")
        odds = [_log_odds(claim, settings, num_classes) for claim in claims]
        # fsum: the order of arrival must not decide by a rounding error.
        scores = {claims[m[0]].text: math.fsum(odds[i] for i in m) for m in answers.values()}
        text = max(scores, key=scores.__getitem__)
        total = math.fsum(map(abs, odds))
        weights = tuple(odd / total for odd in odds) if total else (0.0,) * len(odds)
        return Fused(text, weights, {"log_odds": odds, "posterior": _posterior(scores, num_classes)})


class InverseCovariance:
    """The number with the least variance that weighs the claims without bias."""

    name: ClassVar[str] = "inverse_covariance"
    pure: ClassVar[bool] = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`."""
        settings = _check(self.name, claims, params, _CovarianceParams)
        numbers = np.array([_number(claim) for claim in claims])
        sigma, source = _covariance(claims, settings)
        scale = float(np.max(np.abs(sigma)))
        if not np.all(np.isfinite(sigma)) or not np.allclose(sigma, sigma.T, atol=1e-9 * scale):
            raise AggregateError("inverse_covariance: the covariance must be finite and symmetric.")
        if scale <= 0 or np.linalg.eigvalsh(sigma)[0] <= 1e-12 * scale:
            raise AggregateError(
                "inverse_covariance: the covariance is singular or not positive definite, so no single "
                "weighting is best. Leave out claims that repeat one another, or add to its diagonal."
            )
        precision = np.linalg.solve(sigma / scale, np.ones(len(claims)))
        weights = precision / precision.sum()
        value = float(weights @ numbers)
        variance = None if source == "none given" else float(scale / precision.sum())
        detail = {"value": value, "variance": variance, "covariance": source}
        return Fused(f"{value:.12g}", tuple(map(float, weights)), detail)


class Merge:
    """All parts together: JSON objects key by key, JSON lists and lines without repeats."""

    name: ClassVar[str] = "merge"
    pure: ClassVar[bool] = True

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`. The first to give a key keeps it; the others are listed as conflicts."""
        _check(self.name, claims, params, _NoParams)
        text, kind, conflicts = merge([(claim.agent, claim.text) for claim in claims])
        return Fused(text, (1 / len(claims),) * len(claims), {"kind": kind, "conflicts": conflicts})


class Summary:
    """A model's summary. `fuse` gives the prompt to ask it with."""

    name: ClassVar[str] = "summary"
    pure: ClassVar[bool] = False

    def fuse(self, claims: Sequence[Claim], params: Mapping[str, Any] = _NO_PARAMS) -> Fused:
        """See `Aggregator.fuse`. Claims are quoted as JSON, so that none can pass for another's words."""
        settings = _check(self.name, claims, params, _SummaryParams)
        quoted = (json.dumps({"agent": c.agent, "result": c.text}, ensure_ascii=False) for c in claims)
        text = "\n".join((settings.instruction, *quoted))
        return Fused(text, (1 / len(claims),) * len(claims), {})


AGGREGATORS: Mapping[str, Aggregator] = MappingProxyType(
    {made.name: made for made in (First(), Majority(), LogOdds(), InverseCovariance(), Merge(), Summary())}
)


def aggregator(name: str, among: Mapping[str, Aggregator] = AGGREGATORS) -> Aggregator:
    """The aggregator of this name, or an error with the nearest one. Nothing is imported: a model may say any name."""
    if name in among:
        return among[name]
    raise AggregateError(f"There is no aggregation method {name[:80]!r}. {hint_for_agent(name[:80], among)}")


def make_aggregators(
    given: Iterable[str | Aggregator], named: Iterable[str] = ()
) -> Mapping[str, Aggregator]:
    """What a team may aggregate by: the shipped methods, those given (objects or names), and those its roles name.

    Names that roles and programs use may come out of a file, so of these only what was registered or installed is
    looked up; `module:attr` has to be given.
    """
    found = dict(AGGREGATORS)
    for each in given:
        made = resolve("aggregator", each) if isinstance(each, str) else each
        made = made() if isinstance(made, type) else made
        name = each if isinstance(each, str) and not is_reference(each) else made.name
        if found.setdefault(name, made) is not made:
            raise UsageError(f"there already is an aggregator {name!r}; give this one another name.")
    for name in named:
        if name not in found and knows("aggregator", name):
            made = resolve("aggregator", name)
            found[name] = made() if isinstance(made, type) else made
        elif name not in found:
            raise UsageError(
                f"there is no aggregation method {name!r}. {nearest(name, found)} For one of your own, give the team "
                "aggregators=[...]."
            )
    return AGGREGATORS if len(found) == len(AGGREGATORS) else MappingProxyType(found)


def _check(name: str, claims: Sequence[Claim], params: Mapping[str, Any], kind: type[_P]) -> _P:
    if not claims:
        raise AggregateError(f"{name}: there are no claims to fuse. Wait until an agent has returned.")
    unknown = [key for key in params if key not in kind.__struct_fields__]
    if unknown:
        known = kind.__struct_fields__
        hint = hint_for_agent(str(unknown[0]), known) if known else "It takes none."
        raise AggregateError(f"{name} has no parameter {unknown[0]!r}. {hint}")
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise AggregateError(f"{name}: wrong parameter: {str(error).replace('$.', '')}.") from None


def _answers(claims: Sequence[Claim], normalise: bool) -> dict[str, list[int]]:
    """Answer -> the claims that give it, in order of arrival."""
    found: dict[str, list[int]] = {}
    for index, claim in enumerate(claims):
        key = plain(claim.text) if normalise else claim.text
        found.setdefault(key, []).append(index)
    return found


def _log_odds(claim: Claim, settings: _LogOddsParams, num_classes: int) -> float:
    p = settings.accuracies.get(claim.agent)
    if p is None and claim.confidence is not None:
        p = claim.confidence
        if 0 <= p <= 1:
            p = min(settings.surest, max(1 - settings.surest, p))
    if p is None:
        raise AggregateError(
            f"log_odds: nothing is known of how often {claim.agent!r} is right. Give its claim a confidence, "
            f'or the parameter accuracies={{"{claim.agent}": 0.8}}; or use majority.'
        )
    if not 0 < p < 1:
        raise AggregateError(
            f"log_odds: {claim.agent!r} is right with probability {p}; expected above 0 and below 1."
        )
    return math.log(p) - math.log1p(-p) + math.log(num_classes - 1)


def _posterior(scores: Mapping[str, float], num_classes: int) -> dict[str, float]:
    """Probability of each answer given, all answers being equally likely at first."""
    top = max(0.0, *scores.values())
    likelihood = {text: math.exp(score - top) for text, score in scores.items()}
    total = math.fsum(likelihood.values()) + (num_classes - len(scores)) * math.exp(-top)
    return {text: value / total for text, value in likelihood.items()}


def _number(claim: Claim) -> float:
    try:
        value = float(claim.text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AggregateError(
            f"inverse_covariance: {claim.agent!r} returned {claim.text[:80]!r}; expected one finite number."
        )
    return value


def _covariance(claims: Sequence[Claim], settings: _CovarianceParams) -> tuple[np.ndarray, str]:
    """The covariance of the claims' errors, and where it is from."""
    if settings.covariance is not None:
        names = settings.agents or [claim.agent for claim in claims]
        if {len(settings.covariance), *map(len, settings.covariance)} != {len(names)}:
            raise AggregateError(
                f"inverse_covariance: expected a covariance of {len(names)} by {len(names)}, a row per agent."
            )
        if settings.agents is None:
            return np.array(settings.covariance), "given"
        rows = [_row(claim.agent, settings.agents) for claim in claims]
        return np.array(settings.covariance)[np.ix_(rows, rows)], "given"
    if settings.errors:
        known = list(settings.errors)
        past = [settings.errors[known[_row(claim.agent, known)]] for claim in claims]
        if any(not errors for errors in past):
            raise AggregateError("inverse_covariance: an agent's list of past errors is empty.")
        return np.diag([float(np.mean(np.square(errors))) for errors in past]), "estimated"
    given = [claim.weight for claim in claims if claim.weight is not None]
    if len(given) == len(claims):
        if any(not 0 < weight < math.inf for weight in given):
            raise AggregateError(f"inverse_covariance: weights are {given}; expected finite ones above 0.")
        return np.diag([1 / weight for weight in given]), "weights"
    return np.eye(len(claims)), "none given"


def _row(agent: str, known: Sequence[str]) -> int:
    if agent not in known:
        raise AggregateError(
            f"inverse_covariance: nothing is given for {agent!r}. {hint_for_agent(agent, known)}"
        )
    return known.index(agent)
