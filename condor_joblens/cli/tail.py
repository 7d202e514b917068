"""`joblens tail ID [FILE]`: the last lines of a file of a running job of this node, and with -f what follows."""

from __future__ import annotations

import argparse
import codecs
import os
import re
import sys
from collections.abc import Mapping

from condor_joblens.cli.child_output import messages
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError
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
    if options.json:
        raise JobLensError("a file is bytes: leave --json away")
    shown = Harmless() if sys.stdout.isatty() else None
    begun = False
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    for kind, said in messages(path, verb, {"job": options.id, **arguments}):
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


class Harmless:
    """Bytes as text with whatever a terminal would obey as an escape, but for tabulators and ends of lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def add(self, data: bytes) -> bytes:
        """The next bytes; of a character that is cut off the rest comes with the following ones."""
        return _LINE.sub(lambda found: printable(found[0]), self._decoder.decode(data)).encode()
