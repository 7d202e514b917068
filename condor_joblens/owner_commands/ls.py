"""ls: what is in a folder of a job, one JSON object each. No link is followed to tell of it."""

from __future__ import annotations

import os
import stat
from typing import Any

from condor_joblens.owner_commands.answers import Answers
from condor_joblens.owner_commands.views import open_folder

MOST_ENTRIES = 2000

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells of each entry of `folder`, by name. Raises Failed."""
    folder = open_folder(scratch, str(request["folder"]), cgroup)
    names: list[str] = []
    are_more = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(names) == MOST_ENTRIES:
                are_more = True
                break
            names.append(entry.name)
    for name in sorted(names):
        described = _described(folder, name)
        if described is not None:
            answers.record(described)
    if are_more:
        answers.notice(f"it has more than {MOST_ENTRIES} entries: the others are not shown")


def _described(folder: int, name: str) -> dict[str, Any] | None:
    """An entry; None if it is gone by now. Bytes of its name that are no UTF-8 are lone surrogates."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(found.st_mode) else ""
    except OSError:
        return None
    return {
        "Name": name,
        "Kind": KINDS.get(stat.S_IFMT(found.st_mode), "other"),
        "Mode": stat.S_IMODE(found.st_mode),
        "Bytes": found.st_size,
        "DiskBytes": found.st_blocks * 512,
        "Modified": int(found.st_mtime),
        "Target": target,
    }
