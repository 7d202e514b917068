"""Lines of C, C++ and other compiled code in a profile, from the debug information of the programs on this node."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Optional, Protocol

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.own_process import isolated_alike
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack

MOST_SECONDS = 90.0
_MOST_ANSWER = 32 << 20
_NOBODYS_GROUP = 65534

Place = tuple[str, str, int]
"""Path of a file, its build-id, and an offset in it."""

Line = tuple[str, int]
"""The path of a source, and a line in it from 1 on."""


def with_lines(profile: Profile, uid: Optional[int]) -> tuple[Profile, list[str]]:
    """The profile with sources and lines, and the names of files of which none are known.

    `uid`: of the job's user, as whom root has the files read. Raises JobLensError.
    """
    frames = {frame for stack in profile.stacks for frame in stack.frames if frame.kind is Kind.NATIVE and frame.file}
    lines, without = lines_of({place(frame) for frame in frames}, uid)

    def changed(frame: Frame) -> Frame:
        line = lines.get(place(frame)) if frame.kind is Kind.NATIVE else None
        return dataclasses.replace(frame, file=line[0], line=line[1]) if line else frame

    return profile.mapped(lambda stack: _replaced(stack, tuple(map(changed, stack.frames)))), without


def lines_of(places: set[Place], uid: Optional[int]) -> tuple[dict[Place, Line], list[str]]:
    """The source and line of each place that has one, and the names of files of which none are known.

    Raises JobLensError.
    """
    lines, failed = read({each for each in places if each[1]}, uid)
    known = {path for path, _, _ in lines}
    return lines, without_lines({path for path, _, _ in places} - known, failed)


def without_lines(paths: Iterable[str], failed: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """The names of files without their folders, in order; with why, of those that could not be read."""
    return sorted({path.rpartition("/")[2] + (f" ({failed[path]})" if path in failed else "") for path in paths})


def lacking(files: Sequence[str], why: str = "") -> str:
    """Why some functions have no line."""
    named = ", ".join(printable(file, 120) for file in files[:5]) + (" ..." if len(files) > 5 else "")
    why = why or "without debug information, in a container only, or not the same file any more"
    return f"No lines of {named}: {why}."


def read(places: set[Place], uid: Optional[int]) -> tuple[dict[Place, Line], dict[str, str]]:
    """The source and line of each place that has one, and why files could not be read, by path. Raises JobLensError."""
    if not places:
        return {}, {}
    files: dict[tuple[str, str], list[int]] = {}
    for path, build_id, offset in sorted(places):
        files.setdefault((path, build_id), []).append(offset)
    asked: dict[str, Any] = {
        "files": [{"path": path, "build_id": build_id, "offsets": found} for (path, build_id), found in files.items()]
    }
    said = asked_of("condor_joblens.profiling.source_lines", asked, uid)
    if "error" in said:
        raise JobLensError(printable(str(said["error"]), 300))
    lines = {
        (*file, int(offset)): (str(source), int(line))
        for file, found in zip(files, said["lines"])
        for offset, source, line in found
    }
    return lines, {path: str(why) for (path, _), why in zip(files, said["failed"]) if why}


class _InFile(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def build_id(self) -> str: ...
    @property
    def offset(self) -> int: ...


def place(frame: _InFile) -> Place:
    """Where the code of a frame is."""
    return frame.file, frame.build_id, frame.offset


def _replaced(stack: Stack, frames: tuple[Frame, ...]) -> Stack:
    return dataclasses.replace(stack, frames=frames)


def _user(uid: Optional[int]) -> dict[str, int]:
    if not uid:
        raise JobLensError("the job's user is not known, and root reads no files of jobs: ask as that user")
    try:
        group = pwd.getpwuid(uid).pw_gid
    except KeyError:
        group = _NOBODYS_GROUP
    return {"uid": uid, "gid": group}


def asked_of(module: str, asked: dict[str, Any], uid: Optional[int]) -> dict[str, Any]:
    """What a process says that reads files as the user, or for root as the job's; believed no further than this.

    Raises JobLensError.
    """
    question = json.dumps({**asked, **(_user(uid) if os.geteuid() == 0 else {})}).encode()
    command = isolated_alike(module)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(MOST_SECONDS, process.kill)
        timer.start()
        try:
            process.stdin.write(question)
            process.stdin.close()
            content = process.stdout.read(_MOST_ANSWER)
            said = json.loads(content)
            if not isinstance(said, dict):
                raise ValueError("no object")
            return said
        except (OSError, ValueError, RecursionError):
            raise JobLensError(
                "the lines could not be read: it took too long, or the debug information is damaged"
            ) from None
        finally:
            timer.cancel()
            process.kill()
