"""What a job's owner has done for ps, tail, ls and others, as joblensd passes it on. A stranger made it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from condor_joblens.cli import afar
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE, SOURCE, WHOLE

MOST_NOTICE = 500


def messages(path: str, verb: str, arguments: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    """Kind (CONTENT, NOTICE or SOURCE) and bytes of each message; those two are fit to print. Raises JobLensError."""
    with contextlib.closing(afar.asked(path, verb, arguments)) as packets:
        for packet in packets:
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
