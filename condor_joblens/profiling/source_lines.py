"""Lines of source of places in programs and libraries, from their debug information: a process of `joblens hot`.

It is the user who asks or, if that is root, the job's owner. The files are a job's, so memory and time are bounded, and
what is wrong in a file costs its lines. DWARF is read by `addr2line` of the binutils.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Optional

from condor_joblens.common import privilege
from condor_joblens.profiling.elf import Elf, ElfError

MOST_MEMORY_BYTES = 1 << 30
"""Of data in memory, of this process and of each that it starts."""

SECONDS = 60
"""For all files together."""

FILE_SECONDS = 20
MOST_FILES, MOST_OFFSETS = 256, 20_000
MOST_SOURCE = 500
"""Characters of a source's path; of a longer one the end is kept."""

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}  # no address of a server of debug information
_LINE = re.compile(r"(.+):([0-9]{1,9})(?: \(discriminator [0-9]+\))?")

Line = tuple[str, int]
"""A source, and the line in it."""


def main() -> None:
    """Answers one question, a JSON document in and one out: see `answer`."""
    asked = json.load(sys.stdin)
    confine(asked)
    print(json.dumps(answer(asked["files"])), flush=True)


def confine(asked: dict[str, Any]) -> None:
    """Becomes the user of whom the question says so, if this is root, and bounds what this process can use up."""
    os.chdir("/")
    if os.geteuid() == 0:
        privilege.become(int(asked["uid"]), int(asked["gid"]))
    privilege.end_with_parent(signal.SIGKILL)
    privilege.no_new_privileges()
    privilege.not_dumpable()
    bounds = {resource.RLIMIT_DATA: MOST_MEMORY_BYTES, resource.RLIMIT_CPU: SECONDS, resource.RLIMIT_CORE: 0}
    for which, most in {**bounds, resource.RLIMIT_FSIZE: 0}.items():
        resource.setrlimit(which, (most, most))
    signal.alarm(SECONDS)


def answer(files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """`{"lines": ...}`: for each file, by its place, [offset, source, line] of the offsets that have one.

    A file has `path`, `build_id` and `offsets`. `"failed"` says of each why it was not read, or nothing.
    `{"error": ...}` if the program that reads DWARF is not there.
    """
    reader = shutil.which("addr2line", path=_ENVIRONMENT["PATH"])
    if reader is None:
        return {"error": "there is no addr2line on this machine: install the package binutils"}
    found, failed = [], []
    for file in files[:MOST_FILES]:
        lines: dict[int, Line] = {}
        why = ""
        try:
            lines = of_file(reader, str(file["path"]), str(file["build_id"]), file["offsets"][:MOST_OFFSETS])
        except (ElfError, OSError, MemoryError, subprocess.SubprocessError) as error:
            why = _why(error)
        found.append([[offset, *line] for offset, line in lines.items()])
        failed.append(why)
    return {"lines": found, "failed": failed}


def _why(error: Exception) -> str:
    """What went wrong with a file, in words; nothing if it is not there, or no program."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"addr2line took more than {FILE_SECONDS} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"addr2line ended with {error.returncode}"
    if isinstance(error, MemoryError):
        return "too little memory"
    if isinstance(error, OSError) and error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO):
        return os.strerror(error.errno or errno.EIO)
    return ""


def of_file(reader: str, path: str, build_id: str, offsets: Sequence[int]) -> dict[int, Line]:
    """The lines at offsets of a file, if it still is the one of that build-id. Raises OSError, ElfError and so on."""
    descriptor = os.open(path, _OPEN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return {}
        elf = Elf.unmapped(descriptor)
        if not build_id or elf.build_id != build_id:
            return {}
        addresses = elf.addresses(offsets)
        asked = [(offset, address) for offset, address in zip(offsets, addresses) if address]
        done = subprocess.run(
            [reader, "-e", f"/proc/self/fd/{descriptor}"],
            input="".join(f"{address:#x}\n" for _, address in asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(descriptor,),
            env=_ENVIRONMENT,
            timeout=FILE_SECONDS,
            check=True,
        )
    finally:
        os.close(descriptor)
    said = done.stdout.decode("utf-8", "replace").split("\n")[:-1]
    if len(said) != len(asked):
        return {}
    lines = {offset: line_of(words) for (offset, _), words in zip(asked, said)}
    return {offset: line for offset, line in lines.items() if line is not None}


def line_of(words: str) -> Optional[Line]:
    """`/src/fit.cpp:41 (discriminator 2)` -> the source and 41; None if it says that it knows none."""
    found = _LINE.fullmatch(words)
    if found is None or found[1] == "??" or int(found[2]) == 0:
        return None
    return found[1][-MOST_SOURCE:], int(found[2])


if __name__ == "__main__":
    main()
