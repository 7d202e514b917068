"""last: root, or the owner of a job, has what a running job did last kept as an artifact (agent/flight_recorder.py)."""

from __future__ import annotations

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Request


def find(node: NodeProtocol, request: Request) -> int:
    """The run that is meant. Raises Refused."""
    return find_run.of(node, request)


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Copies it; tells when (epoch seconds). The artifact whose time ends then comes in a moment. Raises Refused."""
    return {"tagged": f"{node.keep_last_events(run, authority.payer(request)):.6f}"}
