"""Where the code of samples lies that were taken before the kernel knew the mappings of their process.

Such a sample has addresses instead of places in files, and asks for its process to be looked at. The mappings that are
found then hold for it as well, unless the process has begun another program meanwhile. A later sample of the same
program (struct process_key) that has places in files proves that it has not. So functions get names when the window
closes. Callers stay a guess: there was no rule for them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import chain

IN_FILE, FILE_SHIFT, FILE_MASK, OFFSET_MASK = 1 << 63, 32, 0x7FFFFFFF, 0xFFFFFFFF
"""A word of a sample that is a place in a file: the file's number, and the offset in it (profile/unwind.bpf.h)."""

MOST_ROWS = 100_000
"""Mappings that are remembered of one run in a window; of further processes early samples stay without names."""

_NUMBERS = 4  # of a mapping


class LateMappings:
    """The mappings of the processes of one run that were looked at since its window began."""

    def __init__(self) -> None:
        # struct process_key -> by each look, the first one first: where they start, rising, and all of each, 4 numbers
        self._found: dict[bytes, list[tuple[array[int], array[int]]]] = {}
        self._proven: set[bytes] = set()
        self._rows = 0

    def prove(self, process: bytes) -> None:
        """A sample was taken while the kernel had its mappings."""
        self._proven.add(process)

    def learn(self, process: bytes, mappings: Iterable[tuple[int, int, int, int]]) -> None:
        """Start, end, offset in the file, and the file's number or 0 if it has none that is known."""
        rows = sorted(each for each in mappings if each[3])
        if rows and self._rows + len(rows) <= MOST_ROWS:
            self._rows += len(rows)
            numbers = array("Q", chain.from_iterable(rows))
            self._found.setdefault(process, []).append((numbers[::_NUMBERS], numbers))

    def word(self, process: bytes, word: int) -> int:
        """The place in a file of an address of the process; the same word if it is one already, or that is not sure."""
        if word & IN_FILE or process not in self._proven:
            return word
        for starts, numbers in self._found.get(process, ()):
            at = bisect_right(starts, word) - 1
            if at < 0:
                continue
            start, end, before, number = numbers[_NUMBERS * at : _NUMBERS * (at + 1)]
            offset = word - start + before
            if word < end and offset <= OFFSET_MASK and number <= FILE_MASK:
                return IN_FILE | number << FILE_SHIFT | offset
        return word
