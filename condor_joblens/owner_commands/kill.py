"""kill: a process of a job gets a signal. The kernel lets the child signal its own user's processes only."""

from __future__ import annotations

import os
import signal
from typing import Any

from condor_joblens.common.redact import Redactor
from condor_joblens.common.signals import signal_name
from condor_joblens.owner_commands import job_processes
from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.owner_commands.ps import command


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Signals the process `pid`, or the job's first one if that is 0, and tells which. Raises Failed."""
    number = int(request["signal"])
    pid = int(request["pid"]) or job_processes.main_process(cgroup)
    if not pid:
        raise Failed("the job has no process")
    line = command(pid, Redactor())
    try:
        # held first: if the id is found in the cgroup afterwards, it is this process's
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        raise Failed(f"process {pid} is none of the job") from None
    except OSError as error:
        raise Failed(f"this kernel can't hold a process while it is looked up ({error.strerror})") from None
    if pid not in job_processes.pids(cgroup):
        if job_processes.has_more(cgroup):
            raise Failed(f"process {pid} is not in {job_processes.SEEN}")
        raise Failed(f"process {pid} is none of the job")
    try:
        signal.pidfd_send_signal(held, number)
    except ProcessLookupError:
        raise Failed(f"process {pid} has ended") from None
    except PermissionError:
        raise Failed(f"process {pid} runs as another user than the job") from None
    answers.record({"Pid": pid, "Signal": signal_name(number), "Command": line})
