"""`joblens get ID FILE`: a file of a running job, page by page; what is broken off can be gone on with."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.units import volume
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

FIELDS = {"Bytes": int, "File": str, "Mode": int}

OVERLAP = 65536
"""Bytes of what is here already that are compared with the job's file before it is gone on with."""

PAGES_AT_ONCE = 20
"""After so many pages one is asked for a second: nodes take no more commands of a user (control/audit.py)."""


def run(options: argparse.Namespace) -> int:
    """Fetches it, and tells where it is; exit code 0."""
    own = os.path.basename(options.file.rstrip("/"))
    own = "file" if own in ("", ".", "..") else own  # the node says that these are no files
    name = options.output or own
    if os.path.isdir(name):
        name = os.path.join(name, own)
    with _opened(name, options.resume) as local:
        try:
            total = _Fetch(options, local).run()
        except UsageError:
            raise
        except (JobLensError, OSError, KeyboardInterrupt) as error:
            here = os.fstat(local).st_size
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            rest = f"; {volume(here)} are in {printable(name, 300)}: --continue goes on" if here else ""
            raise JobLensError(why + rest) from None
    if options.json:
        print(json.dumps({"File": name, "Bytes": total}))
    else:
        print(f"{printable(name, 300)}: {volume(total)}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _opened(name: str, resume: bool) -> Iterator[int]:
    """The file here, to read and write. Raises JobLensError; one that was made and has got nothing goes away again."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if resume else os.O_CREAT | os.O_EXCL)
    try:
        local = os.open(name, flags, 0o666)
    except FileExistsError:
        raise JobLensError(f"{printable(name, 300)} is there already: take --continue, or another name by -o") from None
    except IsADirectoryError:  # it ends with a slash, and nothing is there
        raise JobLensError(f"{printable(name, 300)}: there is no such folder") from None
    except OSError as error:
        raise JobLensError(f"{printable(name, 300)}: {error.strerror}") from None
    try:
        yield local
    except JobLensError:
        if not resume and os.fstat(local).st_size == 0:
            os.unlink(name)
        raise
    finally:
        os.close(local)


class _Fetch:
    """One file's way here."""

    def __init__(self, options: argparse.Namespace, local: int) -> None:
        self._path, self._job, self._file = os.path.join(run_dir(options.run_dir), SOCKET), options.id, options.file
        self._local = local
        self._here = os.fstat(local).st_size
        self._identity = ""

    def run(self) -> int:
        """Bytes that it has in the end: as many as there were when the last page was asked for. Raises JobLensError."""
        pages, same = 0, min(self._here, OVERLAP)
        while True:
            pages += 1
            if pages > PAGES_AT_ONCE:
                time.sleep(1)
            before, total = self._here, self._page(same)
            if self._here >= total:
                return self._here
            if self._here == before:
                raise JobLensError("nothing more came, and it is not whole")
            same = 0

    def _page(self, same: int) -> int:
        """Takes a page; its first `same` bytes are here already. Bytes that the file has. Raises JobLensError."""
        header: dict[str, Any] = {}
        arguments = {"job": self._job, "file": self._file, "offset": str(self._here - same)}
        for kind, said in messages(self._path, "get", arguments):
            if kind != CONTENT:
                print(f"joblens: {said.decode()}", file=sys.stderr)
            elif not header:
                header = record(said, FIELDS)
                if self._identity not in ("", header["File"]):
                    raise JobLensError("it is another file now: begin anew")
                self._identity = header["File"]
            else:
                same = self._take(said, same)
        return int(header.get("Bytes", 0))

    def _take(self, data: bytes, same: int) -> int:
        """Writes it behind what is here, of which `same` bytes are to come again; how many still are then."""
        again = data[:same]
        if again != os.pread(self._local, len(again), self._here - same):
            raise JobLensError("what is here is not the beginning of that file: begin anew")
        rest = memoryview(data)[len(again) :]
        while rest:
            done = os.pwrite(self._local, rest, self._here)
            self._here += done
            rest = rest[done:]
        return same - len(again)
