"""Where a forest branches and in which order, for kernels that want few long stretches (`baton.forest.attention.cuda`).

Rows in pre-order, and how many leading ids each has in common with the one before it, are the whole forest. Any order
of siblings is right, and so is any branching further up than need be; what these choose is how long the stretches are
that a GPU reads at once.
"""

from __future__ import annotations

from collections.abc import Sequence


def raised(shared: Sequence[int], least: int) -> list[int]:
    """What rows share with the one before, with branchings moved up to one less than `least` tokens above.

    Answers to one prompt often begin alike by chance. Sharing a word or two there saves next to nothing, and each
    branching more is another part of attention; so such a stretch is computed in each of its branches.
    """
    found = list(shared)
    open_: list[tuple[int, list[int]]] = [(0, [])]  # branchings above, and which rows leave there

    def close(above: int) -> None:
        depth, mine = open_.pop()
        above = max(above, open_[-1][0])
        if depth - above >= least:
            return
        for row in mine:
            found[row] = above
        if above == open_[-1][0]:
            open_[-1][1].extend(mine)
        else:
            open_.append((above, mine))

    for row, depth in enumerate(shared):
        while open_[-1][0] > depth:
            close(depth)
        if open_[-1][0] < depth:
            open_.append((depth, []))
        open_[-1][1].append(row)
    while len(open_) > 1:
        close(0)
    return found


class _Branching:
    """A depth at which rows part, and what they go on as: rows, and branchings further down."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.below: list[_Branching | int] = []
        self.size = (0, 0)
        """How often the longest way down leaves the first branch at least, and tokens below."""


def first_longest(
    order: Sequence[int], shared: Sequence[int], lengths: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Rows in another pre-order and what each shares with the one before: the branch that branches most goes first.

    First branches follow each other in memory, so a way down from the root is a few stretches: as many as times it
    leaves a first branch. (As in decompositions by heavy paths; `lengths` are the rows', by number.)
    """
    root = _Branching(0)
    path = [root]

    def close() -> None:
        done = path.pop()
        sizes = [each.size if isinstance(each, _Branching) else (0, lengths[each]) for each in done.below]
        first = max(range(len(sizes)), key=sizes.__getitem__)
        done.below.insert(0, done.below.pop(first))
        most = sizes.pop(first)[0]
        done.size = max(most, 1 + max((often for often, _ in sizes), default=-1)), sum(s for _, s in sizes)

    for row, depth in zip(order, shared, strict=True):
        while path[-1].depth > depth:
            if path[-2].depth < depth:  # they part further down than at the branching above
                between = _Branching(depth)
                between.below.append(path[-2].below.pop())
                path[-2].below.append(between)
                close()
                path.append(between)
            else:
                close()
        if path[-1].depth < depth:
            branching = _Branching(depth)
            branching.below.append(path[-1].below.pop())
            path[-1].below.append(branching)
            path.append(branching)
        path[-1].below.append(row)
    while len(path) > 1:
        close()
    found: list[int] = []
    common: list[int] = []
    waiting: list[tuple[_Branching | int, int]] = [(each, 0) for each in reversed(root.below)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, int):
            found.append(each)
            common.append(depth)
            continue
        first, *rest = each.below
        waiting += [(other, each.depth) for other in reversed(rest)]
        waiting.append((first, depth))
    return found, common
