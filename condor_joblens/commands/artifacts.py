"""artifacts: root, or the owner of a job, gets what joblensd has kept about a run: a list, or one artifact.

Owners have no other way to it on the node: the files are for root and the user joblens. A run may be over.
"""

from __future__ import annotations

import contextlib
import os

from condor_joblens.commands import authority
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import text
from condor_joblens.shm.artifact_header import HEADER_BYTES
from condor_joblens.shm.artifacts import ArtifactGone, ArtifactReader, StoredArtifact

PIECE = 1 << 16
"""Bytes of an artifact that are sent at a time."""

HEADERS = 50
"""Headers that are sent at a time."""

MOST_AFAR = 4 << 20
"""Bytes of one artifact, and of the headers of all, that are sent to who asks from afar."""


def find(node: NodeProtocol, request: Request) -> list[StoredArtifact]:
    """The artifacts of the job that is named, of its last run on this node or of all that are meant, first to last.

    From afar those of the run alone for which the access point vouches. Raises Refused.
    """
    if request.vouched is not None:
        return _of_run(node, request.vouched.run)
    name = request.arguments["job"]
    found = [
        each
        for each in node.artifacts.stored()
        if _is_meant(each, each.run, name) or _claims_to_be_meant(node, request, each, name)
    ]
    if not found:
        raise Refused(f"nothing is kept of a job {name[:60]} on this node: {_NEEDS}")
    if request.arguments.get("all"):
        return found
    if not _is_slot(found[-1], name) and len({_job_id(each.claimed_run or each.run) for each in found}) > 1:
        # others' jobs are not named to him
        own = [each for each in found if _may_know(node, request, each)]
        some = ", ".join(list(dict.fromkeys(_job_id(each.claimed_run or each.run) for each in own))[:5])
        raise Refused(f"{name[:60]} means several jobs here, say which{': ' + some if some else ''}")
    # a job whose ad lies is never taken for somebody else's, of which more is known
    sure = [each for each in found if not each.claimed_run or request.uid != 0] or found
    last = sure[-1].run, sure[-1].run_number
    return [each for each in found if (each.run, each.run_number) == last]


def begin(node: NodeProtocol, request: Request, found: list[StoredArtifact], stream: Stream) -> None:
    """Sends the headers of all, or the file of the one that is named. Raises Refused."""
    name = request.arguments.get("name")
    if name is None:
        most = MOST_AFAR // HEADER_BYTES if request.vouched is not None else len(found)
        _Headers(node.artifacts.folder, found[-most:], stream).send()
        return
    chosen = [stored for stored in found if name in (stored.name, stored.name.partition(".")[2])]
    if not chosen:
        kinds = sorted({stored.name.partition(".")[2] for stored in found})
        raise Refused(f"the job has no artifact {name[:60]}, but {', '.join(kinds[:10])}: {_NEEDS}")
    newest = max(chosen, key=lambda stored: (stored.ended, stored.begun, int(stored.name.partition(".")[0])))
    _File(node.artifacts.folder, newest.name, stream, MOST_AFAR if request.vouched is not None else None).send()


_NEEDS = (
    "profiles and crashes take level profile and some seconds, last events level trace, traces and commands "
    "+JobLensTrace, and hang reports a hang"
)


def _of_run(node: NodeProtocol, run: int) -> list[StoredArtifact]:
    """Those of a run that lives. Raises Refused."""
    number = int(node.runs.rows["run_number"][run])
    found = [stored for stored in node.artifacts.stored() if stored.run_number == number]
    if not found:
        level = text(node.runs.rows["level"][run])
        raise Refused(f"nothing is kept of this run yet, which is at level {level}: {_NEEDS}")
    return found


def _is_meant(stored: StoredArtifact, run: str, name: str) -> bool:
    """By 12.0, 12, a GlobalJobId, a run, a slot with or without its host; `run` is what the run is called."""
    job = _job_id(run)
    return name in (run, run.rpartition("#")[0], job, job.partition(".")[0]) or _is_slot(stored, name)


def _claims_to_be_meant(node: NodeProtocol, request: Request, stored: StoredArtifact, name: str) -> bool:
    """Whether the job's own ad alone says that it is meant: for root, and for the user as whom the job ran.

    Such a job was over before its startd could confirm the ad, in which its user may have written anybody's job.
    """
    is_claimed = stored.claimed_run and _is_meant(stored, stored.claimed_run, name)
    return bool(is_claimed) and _may_know(node, request, stored)


def _may_know(node: NodeProtocol, request: Request, stored: StoredArtifact) -> bool:
    return request.uid == 0 or authority.owns(node, request, stored)


def _is_slot(stored: StoredArtifact, name: str) -> bool:
    return stored.slot == name.partition("@")[0]


def _job_id(run: str) -> str:
    """12.0 of the run schedd#12.0#1700000000#1."""
    parts = run.split("#")
    return parts[-3] if len(parts) > 3 else run


class _Headers:
    """Sends headers, some at a time, as its reader takes them. What has been deleted meanwhile is left out."""

    def __init__(self, folder: str, found: list[StoredArtifact], stream: Stream) -> None:
        self._reader, self._stream = ArtifactReader(folder), stream
        self._names = [stored.name for stored in found]
        stream.on_room = self.send

    def send(self) -> None:
        while self._names:
            some, self._names = self._names[:HEADERS], self._names[HEADERS:]
            data = b"".join(map(self._header, some))
            if data and not self._stream.send(data):
                return
        self._stream.end({})

    def _header(self, name: str) -> bytes:
        with contextlib.suppress(ArtifactGone), self._reader.open(name) as (_, descriptor):
            return os.pread(descriptor, HEADER_BYTES, 0)
        return b""


class _File:
    """Sends a file, which may be deleted meanwhile, as its reader takes it."""

    def __init__(self, folder: str, name: str, stream: Stream, most: int | None = None) -> None:
        """Raises Refused if it has been deleted, or has more than `most` bytes."""
        self._stream, self._at = stream, 0
        try:
            with ArtifactReader(folder).open(name) as (_, descriptor):
                size = os.fstat(descriptor).st_size
                if most is not None and size > most:
                    raise Refused(f"{name} has {size} bytes, and {most} come from afar: ask on the job's node")
                self._descriptor = os.dup(descriptor)
        except ArtifactGone as error:
            raise Refused(str(error)) from None
        stream.on_room, stream.on_close = self.send, self._close

    def send(self) -> None:
        while data := os.pread(self._descriptor, PIECE, self._at):
            self._at += len(data)
            if not self._stream.send(data):
                return
        self._close()
        self._stream.end({})

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
