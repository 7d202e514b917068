"""watch: root, or the owner of a job, gets the job's row whenever its numbers are taken, until the run is over.

Owners have no other way to these numbers on the node. The shared memory has the rows of all jobs, and is for root and
the group joblens alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from condor_joblens.commands import find_run
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import SCHEMA_HASH


@dataclass
class Watched:
    """A run that is watched over the socket."""

    number: int  # its run_number: a run's index is another run's when it is over
    sequence: int = -1  # of the row that was sent last
    streams: list[Stream] = field(default_factory=list)


class Watch:
    """Those who watch, and what they have seen."""

    def __init__(self, node: NodeProtocol) -> None:
        self._node = node
        self._watched: dict[int, Watched] = {}  # by the run's index

    @property
    def is_watched(self) -> bool:
        """Whether `send` has anything to do."""
        return bool(self._watched)

    def find(self, node: NodeProtocol, request: Request) -> int:
        """The run that is named. Raises Refused."""
        return find_run.named(node, request)

    def begin(self, request: Request, run: int, stream: Stream) -> None:
        """Sends the run's row, and from now on each newer one. Raises Refused if the caller knows other columns."""
        if request.arguments["schema"] != f"{SCHEMA_HASH:016x}":
            raise Refused("the command and joblensd have different versions: restart joblensd, or install the same one")
        number = int(self._node.runs.rows["run_number"][run])
        watched = self._watched.get(run)
        if watched is None or watched.number != number:
            self._end(run)
            watched = self._watched[run] = Watched(number, int(self._node.runs.rows["sequence"][run]))
        watched.streams.append(stream)
        stream.send(self._node.runs.rows[run].tobytes())

    def send(self) -> None:
        """Sends the rows that are new since the last call. Who has not taken the last one yet misses this one."""
        for run, watched in list(self._watched.items()):
            watched.streams = [stream for stream in watched.streams if stream.is_open]
            row = self._node.runs.rows[run]
            if not watched.streams:
                del self._watched[run]
            elif not self._lives(run, watched):
                self._end(run)
            elif int(row["sequence"]) != watched.sequence:
                watched.sequence = int(row["sequence"])
                _send(watched.streams, row)

    def _lives(self, run: int, watched: Watched) -> bool:
        runs = self._node.runs
        return bool(runs.state["used"][run]) and int(runs.rows["run_number"][run]) == watched.number

    def _end(self, run: int) -> None:
        """The run is over: its last row, and no more."""
        watched = self._watched.pop(run, None)
        if watched is None:
            return
        last = self._node.ended.rows
        for index in np.flatnonzero(last["run_number"] == watched.number)[-1:].tolist():
            _send(watched.streams, last[index])
        for stream in watched.streams:
            stream.end({})


def _send(streams: list[Stream], row: np.void) -> None:
    data = row.tobytes()
    for stream in streams:
        if stream.has_room:
            stream.send(data)
