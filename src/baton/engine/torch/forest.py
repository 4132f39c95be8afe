"""Computed prefixes as a radix forest: each distinct prefix of token ids has its keys and values once.

Invariant: a node's keys and values depend only on the ids from its root down to it, so any call whose
prompt begins with that path may use them. Nodes in use by a call in flight (users > 0) and nodes with
children stay; the rest go least recently used first once the forest holds more than its limit of tokens.
A node is cold until its keys and values are computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch import cat as concatenate

__all__ = ["Forest", "Ids", "Node"]

Ids = NDArray[np.int32]


class Node:
    """A stretch of ids below its parent."""

    __slots__ = ("children", "ids", "kv", "number", "parent", "start", "used", "users")

    def __init__(self, number: int, ids: Ids, start: int, parent: Node | None, kv: Tensor | None) -> None:
        self.number = number
        self.ids = ids
        self.start = start
        """Position of the first id."""
        self.parent = parent
        self.kv = kv
        """layers x 2 x heads x ids x size; None while cold."""
        self.children: dict[int, Node] = {}
        self.users = 0
        self.used = 0

    def chain(self) -> list[Node]:
        """From the root's child down to this node."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]


class Forest:
    """All prefixes, bounded in tokens."""

    def __init__(self, max_tokens: int, max_node_ids: int) -> None:
        self.max_tokens = max_tokens
        self.max_node_ids = max_node_ids
        self.num_tokens = 0
        self._count = 0
        self._clock = 0
        self.root = self._node(np.empty(0, np.int32), 0, None, None)

    def plant(self, ids: Ids) -> tuple[Node, int]:
        """The node that ends exactly at `ids`, made (cold) where missing, and how many ids were warm.

        The caller holds it: users of its whole chain go up by one until `release`.
        """
        node, matched = self._descend(self.root, ids)
        warm = matched
        for each in node.chain():
            if each.kv is None:
                warm = min(warm, each.start)
        for at in range(matched, len(ids), self.max_node_ids):
            node = self._add(node, ids[at : at + self.max_node_ids], None)
        self._clock += 1
        for each in node.chain():
            each.users += 1
            each.used = self._clock
        return node, warm

    def release(self, node: Node) -> None:
        """The holder of `plant`'s node is done. Cold nodes nobody waits for are dropped."""
        for each in reversed(node.chain()):
            each.users -= 1
            if each.kv is None and not each.users:
                self._drop(each)

    def grow(self, node: Node, ids: Ids, kv: Tensor) -> None:
        """Keep what a call computed below `node` (one column of kv per id)."""
        deepest, matched = self._descend(node, ids)
        if matched < len(ids):
            self._clock += 1
            added = self._add(deepest, ids[matched:], kv[..., matched:, :].clone())
            added.used = self._clock
            self._compress(added)

    def trim(self) -> None:
        """Drop what was used longest ago until the forest is within its limit."""
        while self.num_tokens > self.max_tokens:
            leaves = [n for n in self._all() if not n.children and not n.users]
            if not leaves:
                return
            for leaf in sorted(leaves, key=lambda n: n.used):
                if self.num_tokens <= self.max_tokens:
                    return
                self._drop(leaf)

    def _descend(self, node: Node, ids: Ids) -> tuple[Node, int]:
        at = 0
        while at < len(ids) and (child := node.children.get(int(ids[at]))) is not None:
            same = _common(child.ids, ids[at:])
            node = child if same == len(child.ids) else self._split(child, same)
            at += same
            if node is not child:
                break
        return node, at

    def _split(self, node: Node, at: int) -> Node:
        """A new node above `node` takes its first `at` ids; who holds `node` still holds the whole path."""
        assert node.parent is not None
        kv = node.kv
        head = self._node(
            node.ids[:at], node.start, node.parent, None if kv is None else kv[..., :at, :].clone()
        )
        head.users, head.used = node.users, node.used
        node.parent.children[int(node.ids[0])] = head
        node.ids, node.start, node.parent = node.ids[at:], node.start + at, head
        node.kv = None if kv is None else kv[..., at:, :].clone()
        head.children[int(node.ids[0])] = node
        return head

    def _compress(self, node: Node) -> None:
        """Join a node with its parent where nothing else branches off: a conversation stays one stretch."""
        parent = node.parent
        if parent is None or parent.parent is None or parent.users or len(parent.children) > 1:
            return
        assert parent.kv is not None
        assert node.kv is not None
        parent.kv = concatenate((parent.kv, node.kv), -2)
        parent.ids = np.concatenate((parent.ids, node.ids))
        parent.used, parent.children = node.used, node.children
        for child in parent.children.values():
            child.parent = parent

    def _node(self, ids: Ids, start: int, parent: Node | None, kv: Tensor | None) -> Node:
        self._count += 1
        return Node(self._count, ids, start, parent, kv)

    def _add(self, parent: Node, ids: Ids, kv: Tensor | None) -> Node:
        node = self._node(ids, parent.start + len(parent.ids), parent, kv)
        parent.children[int(ids[0])] = node
        self.num_tokens += len(ids)
        return node

    def _drop(self, node: Node) -> None:
        assert node.parent is not None
        assert not node.children
        del node.parent.children[int(node.ids[0])]
        self.num_tokens -= len(node.ids)

    def _all(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


def _common(a: Ids, b: Ids) -> int:
    length = min(len(a), len(b))
    differ = np.flatnonzero(a[:length] != b[:length])
    return int(differ[0]) if len(differ) else length
