"""node: the machine on which a job runs, one JSON object, and then one for each job that the asker has there."""

from __future__ import annotations

import os
from typing import Any

from condor_joblens.common import machine
from condor_joblens.owner_commands.answers import Answers


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells of the machine what everybody on it can see; `jobs` are joblensd's words, and passed on."""
    answers.record({"Host": os.uname().nodename, **machine.machine(), **machine.disk("Scratch", scratch)})
    for job in request["jobs"]:
        answers.record(job)
    if request["more"]:
        answers.notice(f"{request['more']} more jobs are not shown")
