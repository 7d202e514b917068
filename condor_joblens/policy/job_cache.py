"""Jobs that the child keeps between rounds, so that a round brings their numbers only."""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict

from condor_joblens.policy.child_frames import Message
from condor_joblens.policy.engine import Job, JobFacts
from condor_joblens.policy.jobad import JobAd

WINDOW = 32 << 10  # bytes that zlib looks back
MAX_BYTES = 8 << 20  # of compressed ads and of strings that rules have read


class Packed:
    """A job's ad and the facts of its slot and its node, in a few hundred bytes."""

    __slots__ = ("_like", "_packed")

    def __init__(self, message: Message, ad: bytes, like: bytes) -> None:
        """`message` is its `decide`; what it shares with `like`, which one of `text` gives, takes no room."""
        self._like = like
        packer = zlib.compressobj(level=1, zdict=like)
        self._packed = packer.compress(text(message, ad)) + packer.flush()

    def __len__(self) -> int:
        return len(self._packed)

    def __call__(self) -> JobFacts:
        facts, _, ad = zlib.decompressobj(zdict=self._like).decompress(self._packed).partition(b"\n")
        slot, node = json.loads(facts)
        return JobFacts(JobAd(ad), slot, node)


def text(message: Message, ad: bytes) -> bytes:
    """The facts, a line break, and the ad."""
    return json.dumps([message["slot"], message.get("node", {})]).encode() + b"\n" + ad


class CachedJob:
    """A job, and a mark of the answer that joblensd has of it."""

    __slots__ = ("_told", "job", "size")

    def __init__(self, job: Job, size: int) -> None:
        self.job = job
        self.size = size  # bytes, about
        self._told: int | None = None

    def is_news(self, answer: str) -> bool:
        """Whether this is another answer than the last; from now on it is the last."""
        before, self._told = self._told, hash(answer)
        return self._told != before

    def drop_answer(self) -> None:
        """The next answer is news, whatever it is."""
        self._told = None


class JobCache:
    """Jobs by key; the one that was not asked about for longest goes first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, CachedJob] = OrderedDict()
        self._bytes = 0
        self._like = b""  # the first job that was kept: what others share with it takes no room

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, message: Message, ad: bytes, job: Job, answer: Message) -> None:
        """Keep a job that was decided, by its `decide`, its ad and the answer."""
        key = message["key"]
        self.forget(key)
        self._like = self._like or text(message, ad)[:WINDOW]
        job.facts = packed = Packed(message, ad, self._like)
        job.state, job.usage = answer["state"], None
        cached = self._jobs[key] = CachedJob(job, len(packed) + job.strings + 1000)
        cached.is_news(json.dumps(answer))
        self._bytes += cached.size
        while self._bytes > MAX_BYTES and len(self._jobs) > 1:
            self.forget(next(iter(self._jobs)))

    def get(self, key: str) -> CachedJob | None:
        """The job of a key, now the last to go."""
        cached = self._jobs.get(key)
        if cached is not None:
            self._jobs.move_to_end(key)
        return cached

    def forget(self, key: str) -> None:
        """The job is over."""
        cached = self._jobs.pop(key, None)
        if cached is not None:
            self._bytes -= cached.size

    def drop_answers(self) -> None:
        """Other policies are in force: the next round answers for every job."""
        for cached in self._jobs.values():
            cached.drop_answer()
