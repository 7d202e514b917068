"""env: the environment of a process of a job, as it began, one JSON object a variable, without what is a secret."""

from __future__ import annotations

import os
from typing import Any

from condor_joblens.common.redact import Redactor
from condor_joblens.owner_commands import job_processes
from condor_joblens.owner_commands.answers import Answers, Failed

MOST_BYTES = 1 << 20
MOST_VARIABLES = 2000
MOST_NAME, MOST_VALUE = 500, 4096
"""Of the whole, and of each variable: bytes that are told."""

LOOK_SECONDS = 0.5
"""CPU time for taking secrets out of all values; those of the rest are not shown."""


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells of each variable of the process `pid`, by name: of the job's first one if that is 0. Raises Failed.

    Without `values`, names alone.
    """
    pid = int(request["pid"]) or job_processes.main_process(cgroup)
    if not pid:
        raise Failed("the job has no process")
    data = _read(cgroup, pid)
    found = [each.partition(b"=") for each in data[:MOST_BYTES].split(b"\0") if each]
    variables = sorted((name, value) for name, sign, value in found if name and sign)
    redactor = Redactor(LOOK_SECONDS)
    for name, value in variables[:MOST_VARIABLES]:
        told = {"Name": name[:MOST_NAME].decode("utf-8", "backslashreplace")}
        if request["values"]:
            told["Value"] = redactor.variable(told["Name"], value[:MOST_VALUE], len(value) > MOST_VALUE)
        answers.record(told)
    if len(variables) > MOST_VARIABLES or len(data) > MOST_BYTES:
        answers.notice(f"it has more: {min(len(variables), MOST_VARIABLES)} variables are shown")
    if len(variables) < len(found):
        answers.notice(f"{len(found) - len(variables)} pieces are no NAME=VALUE: the process has written over them")


def _read(cgroup: int, pid: int) -> bytes:
    folder = job_processes.open_process(cgroup, pid)
    if folder is None:
        raise Failed(f"process {pid} is none of the job")
    try:
        file = os.open("environ", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            data, block = b"", b"x"
            while block and len(data) <= MOST_BYTES:
                block = os.pread(file, 1 << 16, len(data))
                data += block
            return data
        finally:
            os.close(file)
    except OSError as error:
        why = "it runs as another user, or may not be looked into" if isinstance(error, PermissionError) else ""
        raise Failed(f"process {pid} does not show its environment: {why or error.strerror}") from None
    finally:
        os.close(folder)
