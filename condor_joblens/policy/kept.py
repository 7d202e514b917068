"""Jobs that the child keeps between rounds, so that a round brings their numbers only."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import dataclass

from condor_joblens.policy.engine import Job
from condor_joblens.policy.frames import Message
from condor_joblens.policy.jobad import JobAd

WINDOW = 32 << 10  # bytes that zlib looks back
MAX_BYTES = 8 << 20  # of compressed ads and of strings that rules have read


@dataclass
class Kept:
    """A job, and the answer that joblensd has of it."""

    job: Job
    answer: Message
    size: int  # bytes, about


class KeptJobs:
    """Jobs by key; the one that was not asked about for longest goes first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Kept] = OrderedDict()
        self._bytes = 0
        self._like = b""  # the first ad that was kept: what others share with it takes no room

    def __len__(self) -> int:
        return len(self._jobs)

    def keep(self, key: str, ad: bytes, job: Job, answer: Message) -> None:
        """Keep a job that was decided."""
        self.forget(key)
        like = self._like = self._like or ad[:WINDOW]
        packed = _pack(ad, like)
        job.ad = lambda: JobAd(_unpack(packed, like))
        job.state = answer["state"]
        kept = self._jobs[key] = Kept(job, answer, len(packed) + job.strings + 1000)
        self._bytes += kept.size
        while self._bytes > MAX_BYTES and len(self._jobs) > 1:
            self.forget(next(iter(self._jobs)))

    def get(self, key: str) -> Kept | None:
        """The job of a key, now the last to go."""
        kept = self._jobs.get(key)
        if kept is not None:
            self._jobs.move_to_end(key)
        return kept

    def forget(self, key: str) -> None:
        """The job is over."""
        kept = self._jobs.pop(key, None)
        if kept is not None:
            self._bytes -= kept.size

    def drop_answers(self) -> None:
        """Other policies are in force: the next round answers for every job."""
        for kept in self._jobs.values():
            kept.answer = {}


def _pack(ad: bytes, like: bytes) -> bytes:
    packer = zlib.compressobj(level=1, zdict=like)
    return packer.compress(ad) + packer.flush()


def _unpack(packed: bytes, like: bytes) -> bytes:
    return zlib.decompressobj(zdict=like).decompress(packed)
