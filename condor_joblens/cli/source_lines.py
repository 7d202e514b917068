"""Lines of C, C++ and other compiled code in a profile, from the debug information of the programs on this node."""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import subprocess
import threading
from typing import Any, Optional

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.own_process import isolated_alike
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack

MOST_SECONDS = 90.0
_MOST_ANSWER = 32 << 20
_NOBODYS_GROUP = 65534

Place = tuple[str, str, int]
"""Path of a file, its build-id, and an offset in it."""


def with_lines(profile: Profile, uid: Optional[int]) -> tuple[Profile, list[str]]:
    """The profile with sources and lines, and the names of files of which none are known.

    `uid`: of the job's user, as whom root has the files read. Raises JobLensError.
    """
    frames = {frame for stack in profile.stacks for frame in stack.frames if frame.kind is Kind.NATIVE and frame.file}
    places = {_place(frame) for frame in frames if frame.build_id}
    lines = read(places, uid) if places else {}

    def changed(frame: Frame) -> Frame:
        line = lines.get(_place(frame)) if frame.kind is Kind.NATIVE else None
        return dataclasses.replace(frame, file=line[0], line=line[1]) if line else frame

    known = {path for path, _, _ in lines}
    without = sorted({frame.library for frame in frames if frame.file not in known})
    return profile.mapped(lambda stack: _replaced(stack, tuple(map(changed, stack.frames)))), without


def read(places: set[Place], uid: Optional[int]) -> dict[Place, tuple[str, int]]:
    """The source and line of each place that has one. Raises JobLensError."""
    files: dict[tuple[str, str], list[int]] = {}
    for path, build_id, offset in sorted(places):
        files.setdefault((path, build_id), []).append(offset)
    asked: dict[str, Any] = {
        "files": [{"path": path, "build_id": build_id, "offsets": found} for (path, build_id), found in files.items()]
    }
    if os.geteuid() == 0:
        asked.update(_user(uid))
    said = _asked(json.dumps(asked).encode())
    if "error" in said:
        raise JobLensError(printable(str(said["error"]), 300))
    return {
        (*file, int(offset)): (str(source), int(line))
        for file, found in zip(files, said["lines"])
        for offset, source, line in found
    }


def _place(frame: Frame) -> Place:
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


def _asked(question: bytes) -> dict[str, Any]:
    """What the process says, which is believed no further than this. Raises JobLensError."""
    command = isolated_alike("condor_joblens.profiling.source_lines")
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
