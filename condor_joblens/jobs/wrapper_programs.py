"""Which programs the job's wrapper runs: its shell and its helper, by the files that the kernel finds behind them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

HELPER = "joblens_activate"
"""It lies beside the wrapper."""

FIRST_LINE = 256
"""The kernel reads so many bytes of a script."""

MINOR_BITS = 20


class WrapperPrograms:
    """The shells and helpers of these wrappers. One that has been replaced is known in both forms."""

    def __init__(self, wrappers: Iterable[str] = ()) -> None:
        """`wrappers` are paths; one that isn't there counts from when it is."""
        self._wrappers = tuple(dict.fromkeys(wrappers))
        self._shells: set[tuple[int, int]] = set()
        self.helpers: set[tuple[int, int]] = set()
        """Device and inode of the helpers among them, as the kernel has them."""
        self._look()

    def knows(self, device: int, inode: int) -> bool:
        """Whether this is one of them; the device is as in the kernel: major << 20 | minor."""
        program = (device, inode)
        if program not in self._shells | self.helpers:
            self._look()  # an upgrade replaces them
        return program in self._shells | self.helpers

    def _look(self) -> None:
        for wrapper in self._wrappers:
            helper = os.path.join(os.path.dirname(wrapper), HELPER)
            for path, of_kind in ((_shell_of(wrapper), self._shells), (helper, self.helpers)):
                with contextlib.suppress(OSError, ValueError):
                    of_kind.add(file_of(path))


def _shell_of(script: str) -> str:
    """What the script's first line says that it is run by; empty if nothing."""
    try:
        with open(script, "rb") as file:
            line = file.readline(FIRST_LINE)
    except OSError:
        return ""
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""


def file_of(path: str) -> tuple[int, int]:
    """Device and inode of the file at `path`, as programs in the kernel see them. Raises OSError or ValueError.

    stat(2) tells others on btrfs and overlayfs. Before Linux 5.14 fdinfo lacks the inode, and stat has to do.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
            facts = dict(line.split(":", 1) for line in file.read().splitlines())
        inode = int(facts.get("ino", os.fstat(descriptor).st_ino))
    finally:
        os.close(descriptor)
    return _device_of(int(facts["mnt_id"])), inode


def _device_of(mount: int) -> int:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        found = re.search(rf"^{mount} \d+ (\d+):(\d+) ", file.read(), re.MULTILINE)
    if found is None:
        raise ValueError(f"no mount {mount}")
    return int(found[1]) << MINOR_BITS | int(found[2])
