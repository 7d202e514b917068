"""The tree of calls of a profile: what a flame graph draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional

from condor_joblens.profiles.profile import Frame, Kind, Profile

Key = tuple[Kind, str, str]


@dataclass
class Node:
    """A function where it was called from; `other` is its share of another profile, where one is compared."""

    name: str
    kind: Kind
    file: str = ""
    total: int = 0
    children: dict[Key, Node] = field(default_factory=dict)
    other: int = 0


def tree(profile: Profile, other: Optional[Profile] = None) -> Node:
    """The node that stands for all samples, with all others below it."""
    root = Node("all", Kind.GROUP)
    _add(root, profile, is_other=False)
    if other is not None:
        _add(root, other, is_other=True)
    return root


def _add(root: Node, profile: Profile, *, is_other: bool) -> None:
    for stack, count in profile.stacks.items():
        node: Optional[Node] = root
        for frame in (None, *stack.frames):
            if frame is not None:
                node = _child(node, frame, is_new=not is_other) if node is not None else None
            if node is None:
                break  # only the other profile has been there: there is no place for it in the picture
            if is_other:
                node.other += count
            else:
                node.total += count


def _child(node: Node, frame: Frame, *, is_new: bool) -> Optional[Node]:
    key = frame.kind, frame.function, frame.file
    found = node.children.get(key)
    if found is None and is_new:
        found = node.children[key] = Node(frame.function, frame.kind, frame.file)
    return found


@dataclass(frozen=True)
class Placed:
    """A node in the picture: its row, from 0 at the top, and its first sample from the left."""

    node: Node
    row: int
    start: int


def placed(root: Node, least: float, most: int) -> tuple[list[Placed], int]:
    """Nodes of at least so many samples, row by row, and at most so many of them; and how many are left out."""
    rows: list[Placed] = [Placed(root, 0, 0)]
    found, left_out = list(rows), 0
    while rows:
        below = [each for parent in rows for each in _below(parent)]
        rows = [each for each in below if each.node.total >= least][: max(0, most - len(found))]
        left_out += len(below) - len(rows)
        found += rows
    return found, left_out


def _below(parent: Placed) -> Iterator[Placed]:
    start = parent.start
    for key in sorted(parent.node.children, key=lambda key: (key[1], key[2], key[0].value)):
        child = parent.node.children[key]
        yield Placed(child, parent.row + 1, start)
        start += child.total
