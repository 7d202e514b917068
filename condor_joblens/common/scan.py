"""A table by which C finds, in one pass over a text, whether anything in it asks for a closer look."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

FOUND = 0x8000
"""Set in the last state of each word."""

BYTES = 256


def scan_table(words: Iterable[bytes]) -> np.ndarray:
    """The automaton of Aho and Corasick: the next state by state and byte, shape (states, 256) of uint16.

    FOUND is set if one of `words` (ASCII) ends here, in upper or lower case, or if this byte is no printable ASCII.
    NUL separates, as a space does.
    """
    trie: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for word in words:
        state = 0
        for byte in word.lower():
            if byte not in trie[state]:
                trie[state][byte] = len(trie)
                trie.append({})
            state = trie[state][byte]
        ends.add(state)
    table: np.ndarray = np.zeros((len(trie), BYTES), "u2")
    shorter = [0] * len(trie)  # the state of the longest end of this one that begins a word as well
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        if state:
            table[state] = table[shorter[state]]
        for byte, following in trie[state].items():
            shorter[following] = int(table[shorter[state], byte]) if state else 0
            if following in ends or shorter[following] in ends:
                ends.add(following)
            table[state, byte] = following
            waiting.append(following)
    return _finished(table, ends)


def _finished(table: np.ndarray, ends: set[int]) -> np.ndarray:
    letters: np.ndarray = np.arange(ord("a"), ord("z") + 1)
    table[:, letters - 32] = table[:, letters]
    table[np.isin(table, sorted(ends))] |= FOUND
    unprintable = [byte for byte in range(1, BYTES) if not 32 <= byte < 127]
    table[:, unprintable] = FOUND
    return table
