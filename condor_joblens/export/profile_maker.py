"""Has a process of its own (profile_child.py) make records of profiles, one at a time: bounded whatever is in them."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import subprocess
from dataclasses import dataclass
from typing import Any, Optional

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.own_process import start_alike
from condor_joblens.export.profile_records import MOST_RECORD_BYTES
from condor_joblens.sinks import Record, RecordKind, child_frames

PATIENCE_SECONDS = 60.0
"""For one profile: the process has little weight, and the machine may have much to do."""

_MOST_ANSWER_BYTES = 4 * MOST_RECORD_BYTES


class ProfileGone(JobLensError):
    """It has been deleted, by its age or for newer ones."""


@dataclass(frozen=True)
class MadeRecord:
    """A record, and what it took of a CPU in seconds."""

    record: Record
    seconds: float


class ProfileMaker:
    """The process is started when it is needed, and anew after it had to be ended. For one thread."""

    def __init__(self, folder: str, node: str, patience: float = PATIENCE_SECONDS) -> None:
        """`folder`: of artifacts."""
        self._folder, self._node, self._patience = folder, node, patience
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._to: Optional[socket.socket] = None

    @property
    def pid(self) -> int:
        """Of the process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def make(self, name: str, sinks: frozenset[str]) -> MadeRecord:
        """The record of an artifact, for these sinks. Raises ProfileGone, or JobLensError that says why not."""
        asked = {"folder": self._folder, "name": name, "node": self._node}
        try:
            to = self._connected()
            child_frames.send(to, asked, b"", self._patience)
            said, _ = child_frames.receive(to, _MOST_ANSWER_BYTES, self._patience)
            if "gone" in said:
                raise ProfileGone(printable(str(said["gone"]), 300))
            if "error" in said:
                raise JobLensError(printable(str(said["error"]), 300))
            return MadeRecord(_record(said["record"], sinks), _seconds(said["seconds"]))
        except (OSError, child_frames.BadFrame, LookupError, TypeError, ValueError, AttributeError) as error:
            self.close()
            why = "no answer in time" if isinstance(error, (socket.timeout, TimeoutError)) else "its reader ended"
            raise JobLensError(f"the profile {name} is left out: {why}") from None

    def close(self) -> None:
        """Ends the process."""
        process, to, self._process, self._to = self._process, self._to, None, None
        if to is not None:
            to.close()
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)

    def _connected(self) -> socket.socket:
        if self._to is None:
            self._process, self._to = start_alike("condor_joblens.export.profile_child")
        return self._to


def _record(fields: dict[str, Any], sinks: frozenset[str]) -> Record:
    """Of what the process says, which is believed no further than this. Raises ValueError, LookupError or TypeError."""
    line = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
    if fields["Type"] != RecordKind.PROFILE.value or len(line) > MOST_RECORD_BYTES:
        raise ValueError("no record of a profile")
    return Record(RecordKind.PROFILE, str(fields["Id"]), str(fields["GlobalJobId"]), float(fields["Time"]), line, sinks)


def _seconds(value: Any) -> float:
    return value if isinstance(value, float) and math.isfinite(value) and value > 0 else 0.0
