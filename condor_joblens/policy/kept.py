"""Jobs that the child keeps between rounds, so that a round brings their numbers only."""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict

from condor_joblens.policy.engine import Job, Source
from condor_joblens.policy.frames import Message
from condor_joblens.policy.jobad import JobAd

WINDOW = 32 << 10  # bytes that zlib looks back
MAX_BYTES = 8 << 20  # of compressed ads and of strings that rules have read


class Packed:
    """A job's ad and the facts of its slot and its node, in a few hundred bytes."""

    __slots__ = ("_like", "_packed")

    def __init__(self, asked: Message, ad: bytes, like: bytes) -> None:
        """`asked` is its `decide`; what it shares with `like`, which one of `text` gives, takes no room."""
        self._like = like
        packer = zlib.compressobj(level=1, zdict=like)
        self._packed = packer.compress(text(asked, ad)) + packer.flush()

    def __len__(self) -> int:
        return len(self._packed)

    def __call__(self) -> Source:
        facts, _, ad = zlib.decompressobj(zdict=self._like).decompress(self._packed).partition(b"\n")
        slot, node = json.loads(facts)
        return Source(JobAd(ad), slot, node)


def text(asked: Message, ad: bytes) -> bytes:
    """The facts, a line break, and the ad."""
    return json.dumps([asked["slot"], asked.get("node", {})]).encode() + b"\n" + ad


class Kept:
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


class KeptJobs:
    """Jobs by key; the one that was not asked about for longest goes first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Kept] = OrderedDict()
        self._bytes = 0
        self._like = b""  # the first job that was kept: what others share with it takes no room

    def __len__(self) -> int:
        return len(self._jobs)

    def keep(self, asked: Message, ad: bytes, job: Job, answer: Message) -> None:
        """Keep a job that was decided, by its `decide`, its ad and the answer."""
        key = asked["key"]
        self.forget(key)
        self._like = self._like or text(asked, ad)[:WINDOW]
        job.source = packed = Packed(asked, ad, self._like)
        job.state, job.usage = answer["state"], None
        kept = self._jobs[key] = Kept(job, len(packed) + job.strings + 1000)
        kept.is_news(json.dumps(answer))
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
            kept.drop_answer()
