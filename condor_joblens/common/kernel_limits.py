"""What level profile lacks on kernels before 5.17, in words: for doctor, a job's `Note`, and pictures' headings."""

from __future__ import annotations

import os
import re

WHOLE_STACKS = (5, 17)
"""The first kernel whose programs unwind user stacks by tables, and find functions of Python."""


def of_this_kernel() -> str:
    """As `of_stacks`, for a kernel that has just shown that it takes no better program."""
    return _in_words(os.uname().release)


def of_stacks(release: str) -> str:
    """What stacks lack on the kernel of which uname(2) says this: `kernel 5.10: frame pointers only, no Python`."""
    return _in_words(release) if _version(release) < WHOLE_STACKS else ""


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def _in_words(release: str) -> str:
    return f"kernel {'.'.join(map(str, _version(release)))}: frame pointers only, no Python"
