"""What joblensd tells of a job's threads, asked for. The commands hang and stacks show it."""

from __future__ import annotations

import contextlib

from condor_joblens.cli import afar, artifacts
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client
from condor_joblens.profiles.evidence import Evidence, parse, parse_kept

PATIENCE = 120.0
"""Seconds until the first part is there: others may have asked before."""

MOST_BYTES = 16 << 20


def ask(path: str, job: str, *, only_here: bool = False) -> Evidence:
    """What the job's threads do and wait for now; `only_here`: of a job on this node. Raises JobLensError."""
    data = bytearray()
    asks = client.stream if only_here else afar.kept_whole
    with contextlib.closing(asks(path, "evidence", {"job": job}, PATIENCE)) as messages:
        for message in messages:
            data += message
            if len(data) > MOST_BYTES:
                raise JobLensError("joblensd sends more than there can be")
    return parse(bytes(data))


def kept(path: str, job: str) -> list[tuple[float, Evidence]]:
    """The looks that joblensd has taken by itself because the job seemed to hang: epoch seconds, and what was seen.

    They are of the last time, and the job may be over. Raises JobLensError, also if there are none.
    """
    return parse_kept(artifacts.fetched(path, job, "hang")[1])
