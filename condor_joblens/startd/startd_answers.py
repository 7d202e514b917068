"""What a startd has said: which job each of its slots runs, as plain lines that can't hurt whoever reads them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from condor_joblens.common.condor_commands import EXPRESSION
from condor_joblens.common.errors import printable

ATTRIBUTES = (
    *("Name", "JobId", "GlobalJobId", "RemoteOwner", "RemoteUser", "AccountingGroup", "JobUniverse", "JobStart"),
    *("StarterPid", "Cpus", "Memory", "GPUs"),
)
"""What a startd is asked about each slot, beside what policies see of the slot and the site's STARTD_JOB_ATTRS."""

MAX_STRING = 1024  # characters
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_MARK = re.compile(rb"^= [0-9]+ ([0-9]{1,3}) ([^\n]*)\n", re.MULTILINE)
_JOB = re.compile(r"([0-9]{1,12})\.([0-9]{1,12})")


@dataclass(frozen=True)
class SlotJob:
    """A slot, and what its startd holds of it and its job."""

    slot: str  # slot1_1
    starter: int  # its process id; 0: the startd does not say, as up to HTCondor 23
    ad: bytes  # plain literals alone, a line each, in the old ClassAd format


@dataclass(frozen=True)
class Answer:
    """What all startds of the node have said to one question."""

    jobs: tuple[SlotJob, ...]
    faults: tuple[str, ...]  # a line for each startd that could not be asked


def parse(said: bytes) -> Answer:
    """The answer in what the asking process printed (startd_child.SCRIPT). Never raises."""
    jobs: list[SlotJob] = []
    faults, start = [], 0
    for mark in _MARK.finditer(said):
        part, code = said[start : mark.start()], int(mark.group(1))
        start = mark.end()
        try:
            if code != 0:
                raise ValueError(_reason(part, code))
            jobs += _slot_jobs(part)
        except ValueError as error:
            faults.append(printable(str(error), 200))
    return Answer(tuple(jobs), tuple(faults))


def _reason(part: bytes, code: int) -> str:
    if code in (124, 137):
        return "it did not answer in time"
    lines = [line.strip() for line in part.decode(errors="replace").splitlines() if line.strip()]
    return lines[0] if lines else f"condor_status ended with exit code {code}"


def _slot_jobs(part: bytes) -> list[SlotJob]:
    """The slots in what one condor_status printed: a JSON list, or nothing. Raises ValueError."""
    start = part.find(b"[\n")
    if start < 0:
        return []
    try:
        ads = json.loads(part[start:])
    except RecursionError:
        raise ValueError("its answer is nested too deep") from None
    if not isinstance(ads, list):
        raise ValueError("its answer is no list of ads")
    found = [_slot_job(ad) for ad in ads if isinstance(ad, dict)]
    return [job for job in found if job is not None]


def _slot_job(ad: dict[str, object]) -> SlotJob | None:
    name, starter = ad.get("Name"), ad.get("StarterPid")
    if not isinstance(name, str):
        return None
    values = dict(ad)
    job = values.get("JobId")
    if isinstance(job, str) and (numbers := _JOB.fullmatch(job)):
        values["ClusterId"], values["ProcId"] = (int(number) for number in numbers.groups())
    lines = [line for key, value in values.items() if (line := _line(key, value))]
    is_pid = isinstance(starter, int) and not isinstance(starter, bool) and 0 < starter < 1 << 31
    return SlotJob(name.partition("@")[0], int(str(starter)) if is_pid else 0, "".join(lines).encode())


def _line(name: str, value: object) -> str:
    """`name = value`; empty for what is no plain literal, or can't be written as one."""
    if not _NAME.fullmatch(name):
        return ""
    if isinstance(value, bool):
        return f"{name} = {'true' if value else 'false'}\n"
    if isinstance(value, int):
        return f"{name} = {value}\n" if abs(value) < 1 << 53 else ""
    if isinstance(value, float):
        return f"{name} = {value:.6f}\n" if math.isfinite(value) and abs(value) < 1e15 else ""
    if not isinstance(value, str) or len(value) > MAX_STRING or value.startswith(EXPRESSION):
        return ""
    return f'{name} = "{value}"\n' if value.isprintable() and '"' not in value and "\\" not in value else ""
