"""What is left out of an ad that would be too long, and in which order.

An ad is in the memory and the log of the schedd for every running job, so that its length has a limit (see
classad.LIMIT). The order below is the whole decision. A step is taken only if the ones before it were not enough, and
takes no more than is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.model.metrics import shortened

ENDPOINT, SERVERS = "Endpoint", "Servers"
"""The groups that are lists of ads."""

SENTENCES = frozenset({"Reason", "Note", "Uncounted", "FirstFailure", "Death", "Progress"})
"""Attributes that somebody reads: they lose whole words, and an ellipsis says so."""


@dataclass
class Entry:
    """A number or a class of a group: `Name=value;`, or nothing where not known; of a list an ad and a comma."""

    text: str
    weight: float  # how much there is in it: those with the least go first, and of equal ones the last


@dataclass
class Draft:
    """An ad in pieces."""

    head: str  # what always stays: `Name=value;` again and again
    texts: dict[str, str]  # attribute -> its text, not yet quoted; empty: not there
    groups: dict[str, list[Entry]]  # nested ad -> its entries
    quote: Callable[[str], str]

    def written(self) -> str:
        """The ad."""
        parts = [f"{name}={self.quote(text)};" for name, text in self.texts.items() if text]
        for group, entries in self.groups.items():
            body = "".join([entry.text for entry in entries])
            if body:
                parts.append(f"{group}={{{body[:-1]}}};" if group in (ENDPOINT, SERVERS) else f"{group}=[{body[:-1]}];")
        return f"[{self.head}{''.join(parts)[:-1]}]" if parts else f"[{self.head[:-1]}]"


@dataclass(frozen=True)
class Text:
    """The text loses its end, down to so many characters; a sentence at a word, which can be a few more."""

    attribute: str
    kept: int

    def give_way(self, draft: Draft, excess: int) -> None:
        """Makes `draft` shorter by at least `excess` bytes, or by all that this step may take."""
        text = draft.texts.get(self.attribute, "")
        kept = max(self.kept, len(text) - excess)
        if self.attribute in SENTENCES:
            draft.texts[self.attribute] = shortened(text, kept)
        else:
            draft.texts[self.attribute] = text[:kept]


@dataclass(frozen=True)
class Least:
    """The group loses those of its entries in which there is least, until so many are left."""

    group: str
    kept: int

    def give_way(self, draft: Draft, excess: int) -> None:
        """Makes `draft` shorter by at least `excess` bytes, or by all that this step may take."""
        entries = [entry for entry in reversed(draft.groups.get(self.group, [])) if entry.text]
        for entry in sorted(entries, key=lambda entry: entry.weight)[: max(0, len(entries) - self.kept)]:
            if excess <= 0:
                return
            excess -= len(entry.text)
            entry.text = ""


ORDER: tuple[Text | Least, ...] = (
    Least("Errors", 12), Least("Syscall", 8), Least("Wait", 4 + 8), Least("Fs", 8),
    Text("Reason", 40), Text("Requested", 20), Text("Note", 80), Text("Uncounted", 80), Text("Policy", 20),
    Text("FirstFailure", 80), Text("Progress", 40), Least("Profile", 0), Least("Trace", 0), Least("Peek", 0),
    Least("Errors", 5), Least("Syscall", 4), Least(ENDPOINT, 1), Least("Wait", 4 + 4), Least("Fs", 4),
    Least(SERVERS, 1), Text("Reason", 0), Text("Requested", 0), Text("Policy", 0),
    Least("Syscall", 0), Least("Errors", 2), Least(ENDPOINT, 0), Least("Wait", 4 + 2), Least("Fs", 2),
    Text("Uncounted", 0), Text("Note", 0), Text("Progress", 0), Text("FirstFailure", 0), Text("Death", 80),
    Least("Errors", 0), Least("Wait", 0), Least("Fs", 0), Least(SERVERS, 0), Least("Server", 0),
    Least("Process", 0), Least("Tcp", 0), Least("Io", 0), Least("Memory", 0), Least("Cpu", 0),
    Text("Death", 0), Text("Run", 0),
)  # fmt: skip
"""The steps: first the rare of what there are many of, then words, then numbers, and last how the run ended."""


def shorten(draft: Draft, limit: int) -> str:
    """The ad, of at most `limit` bytes, which must leave room for the head. `draft` is changed."""
    text = draft.written()
    for step in ORDER:
        if len(text) <= limit:
            break
        step.give_way(draft, len(text) - limit)
        text = draft.written()
    return text
