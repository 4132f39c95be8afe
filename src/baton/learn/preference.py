"""Learning from labels: from examples of what is right (SFT), and from pairs of a better and a worse answer (DPO).

Credit labels every answer: it is chosen where its advantage is above zero and rejected where it is below, as
`tree-backup` with `label = true` gives it. For answers y to prompts x

    SFT    L = -(1/T) sum over chosen y of sum over tokens of log pi(y_t | x, y_<t), T their number
    DPO    L = -(1/P) sum over pairs of log sigmoid(m),
           m = beta [log pi(y+ | x) - log ref(y+ | x) - log pi(y- | x) + log ref(y- | x)]

A pair is a chosen and a rejected answer to the very same prompt; all P of a batch count alike. As

    grad L = -(1/P) sum over pairs of beta sigmoid(-m) [grad log pi(y+) - grad log pi(y-)],

the margins are computed first, without gradients, and then every answer is one row with its share of all its pairs as
advantage: the gradient of REINFORCE on those rows is that of DPO, whatever passes the rows of a pair lie in.

Labels are no draws, so nothing corrects for who sampled. An answer that was drawn several times counts once.
Sources: DPO, arXiv 2305.18290 [P]; both on a tree's labels, role by role, MALT, arXiv 2412.01928 [P].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from baton.errors import UsageError
from baton.forest.rows import Row
from baton.learn.loss import LossKind
from baton.learn.recipe import Recipe
from baton.learn.update import Gradients, UpdateReport


def labelled(rows: Sequence[Row], rule: LossKind) -> list[Row]:
    """The rows that a loss of labels learns from, with the label as advantage."""
    found = _distinct(rows)
    if rule.labels == "chosen":
        return [row for row in found if row.advantages[0] > 0]
    paired = {place for pair in pairs_of(found) for place in pair}
    return [row for place, row in enumerate(found) if place in paired]


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """One row for each answer to a prompt, labelled +1 or -1 by the mean of what was said of it; 0 is no label."""
    alike: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.ids.tobytes(), row.places.tobytes()), []).append(row)
    found: list[Row] = []
    for same in alike.values():
        label = float(np.sign(np.mean([float(row.advantages.mean()) for row in same])))
        if label:
            found.append(structs.replace(same[0], advantages=np.full(len(same[0].places), label)))
    return found


def pairs_of(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Places of a chosen and a rejected answer to one prompt, all there are."""
    by_prompt: dict[bytes, list[int]] = {}
    for place, row in enumerate(rows):
        by_prompt.setdefault(row.ids[: row.places[0]].tobytes(), []).append(place)
    return [
        (better, worse)
        for places in by_prompt.values()
        for better in places
        if rows[better].advantages[0] > 0
        for worse in places
        if rows[worse].advantages[0] < 0
    ]


def shares(
    pairs: Sequence[tuple[int, int]], above: NDArray[np.float64], beta: float
) -> tuple[NDArray[np.float64], float, float]:
    """How much the log-probability of each answer is to rise (-dL/dlog pi); L; the share of pairs with m > 0.

    `above` is log pi - log ref of each answer.
    """
    better, worse = np.array(pairs).T
    margin = beta * (above[better] - above[worse])
    pull = beta / (1 + np.exp(margin)) / len(pairs)
    found = np.zeros(len(above))
    np.add.at(found, better, pull)
    np.add.at(found, worse, -pull)
    return found, float(np.logaddexp(0, -margin).mean()), float((margin > 0).mean())


def backward_of_pairs(gradients: Gradients, rows: Sequence[Row]) -> UpdateReport:
    """Add the gradients of DPO over all pairs of the rows."""
    pairs = pairs_of(rows)
    above = gradients.row_logprobs(gradients.model, rows) - gradients.row_logprobs(gradients.reference, rows)
    found, value, preferred = shares(pairs, above, gradients.loss.beta)
    num_tokens = sum(len(row.places) for row in rows)  # what the update divides by
    made = [
        structs.replace(
            row, advantages=np.full(len(row.places), share * num_tokens), weights=np.ones(len(row.places))
        )
        for row, share in zip(rows, found.tolist(), strict=True)
    ]
    report = gradients.backward(made)
    return structs.replace(report, loss=value, means={**report.means, "preferred": preferred})


def check_labels(recipe: Recipe, rule: LossKind) -> None:
    """Refuse what a loss of labels has not, and what only such a loss has."""
    given = recipe.loss
    if rule.labels != "pairs" and given.beta is not None:
        raise UsageError(
            f"loss.beta is dpo's, and loss.kind is {rule.name}, so it would do nothing. Leave it out."
        )
    if rule.labels == "none":
        return
    if rule.labels == "pairs":
        for name in ("scale", "length", "entropy", "kl"):
            if getattr(given, name):
                raise UsageError(
                    f"loss.kind is {rule.name}, where all pairs count alike and the reference is in the formula, so "
                    f"loss.{name} would do nothing. Leave it out."
                )
    if recipe.train.decision_only:
        raise UsageError(
            f"loss.kind is {rule.name}, which learns whole answers, and train.decision_only is set. Leave one out."
        )
