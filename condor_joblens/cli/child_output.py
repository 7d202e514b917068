"""What a job's owner has done for ps, tail, ls and others, as joblensd passes it on. A stranger made it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from condor_joblens.cli import afar
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE, SOURCE, WHOLE

MOST_NOTICE = 500

MOST_BYTES = 64 << 20
"""Of an answer that is not followed: no node passes more on (agent/owner_commands.py)."""

MOST_MESSAGES = 4096
"""Of such an answer: twice the most that a job's node lists."""

MOST_SECONDS = 120.0
"""For the whole of it: the node takes 15 s at most (owner_commands/children.py), and the rest is its way."""


def messages(path: str, verb: str, arguments: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    """Kind (CONTENT, NOTICE or SOURCE) and bytes of each message; those two are fit to print.

    Raises JobLensError, also if more comes than there can be: whoever asks may keep all of it. What is followed, and a
    trace, has no bounds, and its messages are to be forgotten one by one.
    """
    is_endless = verb == "trace" or arguments.get("follow") == "1"
    with contextlib.closing(afar.asked(path, verb, arguments)) as packets:
        for packet in packets if is_endless else _bounded(packets):
            kind, said = packet[:1], packet[1:]
            text = printable(said.decode("utf-8", "replace"), MOST_NOTICE)
            if kind == CONTENT:
                yield kind, said
            elif kind in (NOTICE, SOURCE):
                yield kind, text.encode()
            elif kind == FAILED:
                raise JobLensError(text)
            elif kind == WHOLE:
                return
    raise JobLensError("this is not all: what does it as the job's owner did not answer in time, or was ended")


def _bounded(packets: Iterable[bytes]) -> Iterator[bytes]:
    """The packets, up to the three bounds. Raises JobLensError."""
    count, size, until = 0, 0, time.monotonic() + MOST_SECONDS
    for packet in packets:
        count, size = count + 1, size + len(packet)
        if count > MOST_MESSAGES or size > MOST_BYTES:
            raise JobLensError(
                f"the node has sent more than {MOST_MESSAGES} messages or {MOST_BYTES >> 20} MiB, "
                "as no honest one does: the rest is not taken"
            )
        if time.monotonic() > until:
            raise JobLensError(f"the answer was not whole within {MOST_SECONDS:.0f} s: the rest is not taken")
        yield packet


def record(
    said: bytes, kinds: Mapping[str, type], optional: Mapping[str, type] = MappingProxyType({})
) -> dict[str, Any]:
    """A JSON object with these fields of these types, whose texts are fit to print. Raises JobLensError.

    Those that are `optional` may be missing.
    """
    try:
        found = json.loads(said)
        fields = {name: kind(found[name]) for name, kind in kinds.items()}
        fields.update({name: kind(found[name]) for name, kind in optional.items() if name in found})
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise JobLensError("what was seen of the job makes no sense: install the same version of all parts") from None
    return {name: printable(value, 5000) if isinstance(value, str) else value for name, value in fields.items()}
