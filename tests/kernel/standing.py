"""What a trace for a job's life says."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any

from traced_jobs import SECONDS, Traces

from condor_joblens.common import readiness
from condor_joblens.control.child_output import NOTICE, WHOLE
from condor_joblens.profiles import traced_calls
from condor_joblens.profiles.traced_calls import TracedCalls
from condor_joblens.tracing import standing_messages as messages


@dataclass
class Told:
    """What a standing trace has said."""

    sums: list[messages.Sums] = field(default_factory=list)
    kept: list[TracedCalls] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    parts: bytes = b""
    is_whole: bool = False

    def receive(self, channel: socket.socket) -> bool:
        """One message; False at the end."""
        assert readiness.readable([channel], SECONDS), self
        message = channel.recv(1 << 16)
        kind, said = message[:1], message[1:]
        if kind == messages.SUMS:
            self.sums.append(messages.understood(said))
        elif kind == messages.PART:
            self.parts += said
        elif kind == messages.KEEP:
            assert messages.span(said)[0] <= messages.span(said)[1]
            self.kept.append(traced_calls.decode(self.parts))
            self.parts = b""
        elif kind == NOTICE:
            self.notices.append(said.decode())
        elif kind == WHOLE:
            self.is_whole = True
        return bool(message)

    def probed(self, name: str) -> int:
        """How many functions of this name are probed, as far as it is told."""
        return sum(each.name == name for each in self.sums[-1].functions) if self.sums else 0

    def has_probed(self, name: str) -> bool:
        """Whether there is one."""
        return self.probed(name) > 0

    def rest(self, channel: socket.socket) -> TracedCalls:
        """All until its end; what was kept last."""
        while self.receive(channel):
            pass
        channel.close()
        assert self.is_whole and not self.parts, self
        return self.kept[-1]


def begin(traces: Traces, *specs: str) -> socket.socket:
    return traces.begin(*specs, seconds=0, stands=True)


def counts(kept: TracedCalls, name: str) -> dict[str, Any]:
    """How often it was called, and how that ended, as far as it is not 0."""
    (function,) = [each for each in kept.functions if each.name == name]
    return {key: count for key, count in function.counts.items() if count and key != "Processes"}
