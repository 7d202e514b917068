"""Which traced function was called by which: sums of calls by the way that leads to them, the call tree of a job."""

from __future__ import annotations

from dataclasses import dataclass

MOST_NODES = 1000
MOST_DEEP = 64
"""Further calls are counted where they begin to be too many or too deep, in the node of what has called them."""

ROOT = -1


@dataclass
class Node:
    """Calls of a function that come the same way."""

    parent: int  # its number, or ROOT
    function: int
    depth: int
    calls: int = 0
    ended: int = 0  # those of them that returned, or left by a jump
    unwound: int = 0
    total_ns: int = 0  # of those that ended, from entry to exit


class CallTree:
    """All nodes; a parent comes before its children."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.folded = 0
        """Calls that have no node of their own; they are in none."""
        self._numbers: dict[tuple[int, int], int] = {}

    def enter(self, parent: int, function: int) -> int:
        """A function is called in a call of the node `parent`; the number of its own node, or ROOT if it has none."""
        number = self._numbers.get((parent, function))
        if number is None:
            depth = 0 if parent == ROOT else self.nodes[parent].depth + 1
            if len(self.nodes) >= MOST_NODES or depth >= MOST_DEEP:
                self.folded += 1
                return ROOT
            number = self._numbers[parent, function] = len(self.nodes)
            self.nodes.append(Node(parent, function, depth))
        self.nodes[number].calls += 1
        return number

    def end(self, number: int, took_ns: int) -> None:
        """A call of this node has returned or left."""
        if number != ROOT:
            node = self.nodes[number]
            node.ended += 1
            node.total_ns += took_ns

    def unwind(self, number: int, by: int = 1) -> None:
        """A call of this node was unwound; -1: it was not after all."""
        if number != ROOT:
            self.nodes[number].unwound += by
