"""`joblens tail ID [FILE]`: the last lines of a file of a running job of this node, and with -f what follows."""

from __future__ import annotations

import argparse
import base64
import codecs
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping

from condor_joblens.cli.child_output import messages
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.redact import printable
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT, SOURCE

_LINE = re.compile(r"[^\t\n]+")


def run(options: argparse.Namespace) -> int:
    """Writes the bytes as they are, and to a terminal without what it would obey; exit code 0."""
    follow = "1" if options.follow else "0"
    return show(options, "tail", {"file": options.file, "lines": str(options.lines), "follow": follow})


def show(options: argparse.Namespace, verb: str, arguments: Mapping[str, str]) -> int:
    """The same for any verb whose answer is a file's bytes."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    said = messages(path, verb, {"job": options.id, **arguments})
    return _as_json(said) if options.json else _as_bytes(said)


def _as_bytes(answer: Iterable[tuple[bytes, bytes]]) -> int:
    shown = Harmless() if sys.stdout.isatty() else None
    begun = False
    for kind, said in answer:
        if kind == CONTENT:
            sys.stdout.buffer.write(said if shown is None else shown.add(said))
            sys.stdout.buffer.flush()
        elif kind == SOURCE:
            sys.stdout.buffer.write(b"\n" * begun + b"==> " + said + b" <==\n")
            sys.stdout.buffer.flush()
            begun = True
        else:
            print(f"joblens: {said.decode()}", file=sys.stderr, flush=True)
    return 0


def _as_json(answer: Iterable[tuple[bytes, bytes]]) -> int:
    """A line of JSON for each piece, as it comes: Text, or Base64 of what is no UTF-8; File, and Note."""
    pieces = Pieces()
    for kind, said in answer:
        if kind == CONTENT:
            found = pieces.add(said)
        else:
            found = [*pieces.rest(), {"File" if kind == SOURCE else "Note": said.decode()}]
        for each in found:
            print(json.dumps(each), flush=True)
    for each in pieces.rest():
        print(json.dumps(each), flush=True)
    return 0


class Pieces:
    """Bytes as text where they are UTF-8; a character that is cut off waits for its rest."""

    def __init__(self) -> None:
        self._cut = b""

    def add(self, data: bytes) -> list[dict[str, str]]:
        """The next bytes, in pieces that joined are what has come."""
        data = self._cut + data
        self._cut = b""
        try:
            return [{"Text": data.decode()}] if data else []
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                return [{"Base64": base64.b64encode(data).decode()}]
            self._cut = data[error.start :]
            return [{"Text": data[: error.start].decode()}] if error.start else []

    def rest(self) -> list[dict[str, str]]:
        """What still waits, when nothing follows."""
        rest, self._cut = self._cut, b""
        return [{"Base64": base64.b64encode(rest).decode()}] if rest else []


class Harmless:
    """Bytes as text with whatever a terminal would obey as an escape, but for tabulators and ends of lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def add(self, data: bytes) -> bytes:
        """The next bytes; of a character that is cut off the rest comes with the following ones."""
        return _LINE.sub(lambda found: printable(found[0]), self._decoder.decode(data)).encode()
