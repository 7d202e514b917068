"""Which variable of a job is to be read, as a person writes it: `FILE:NAME`, its members and elements, and its type.

`reco:event`, `reco:work::state.run[3]`; without debug information `libfoo.so*:counter as long`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Union

from condor_joblens.model.trace_spec import MOST_TEXT, Spec, SpecError, Type, parse_type

MOST_STEPS = 10

_STEPS = re.compile(r"(?:\.|->)(?P<member>[A-Za-z_]\w*)|\[(?P<index>\d{1,9})\]")
_WORD = r"[A-Za-z_$][\w$]*"
_NAME = re.compile(rf"(?P<name>{_WORD}(?:::{_WORD})*)(?P<steps>(?:(?:\.|->)[A-Za-z_]\w*|\[\d{{1,9}}\])*)")

Step = Union[str, int]
"""The name of a member, or the number of an element."""


@dataclass(frozen=True)
class PeekSpec:
    """One variable."""

    file: str  # a pattern, as in a Spec
    name: str
    steps: tuple[Step, ...] = ()
    type: Optional[Type] = None  # as it was written

    def is_file(self, path: str) -> bool:
        """Whether it means the file with this path."""
        return Spec(self.file, "").is_file(path)

    @property
    def shown(self) -> str:
        """`state.run[3]`."""
        return self.name + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)


def parse(text: str) -> PeekSpec:
    """What a person writes. Raises SpecError."""
    if len(text) > MOST_TEXT or not text.isprintable():
        raise SpecError(f"write FILE:NAME in at most {MOST_TEXT} characters that can be printed")
    file, _, rest = text.strip().partition(":")
    name, _, kind = rest.partition(" as ")
    found = _NAME.fullmatch(name.strip())
    if not file or found is None:
        raise SpecError("write FILE:NAME, for example reco:event, reco:state.run[3] or 'reco:counter as long'")
    steps: list[Step] = [
        each["member"] if each["member"] else int(each["index"]) for each in _STEPS.finditer(found["steps"])
    ]
    if len(steps) > MOST_STEPS:
        raise SpecError(f"at most {MOST_STEPS} members and elements in one another are followed")
    if kind and steps:
        raise SpecError(
            "`as TYPE` is for a whole variable; debug information says of which type a member is: leave ` as TYPE` out"
        )
    return PeekSpec(file, found["name"], tuple(steps), parse_type(kind) if kind else None)
