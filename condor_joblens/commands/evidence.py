"""evidence: root, or the owner of a job, gets what the job's threads do and wait for, with their stacks.

The answer is lines of JSON, which the owner's own process writes (profiling/look.py): first what is sure to come.
"""

from __future__ import annotations

from condor_joblens.commands import authority, find_run
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Request


def find(node: NodeProtocol, request: Request) -> int:
    """The run that is meant. Raises Refused."""
    return find_run.of(node, request)


def begin(node: NodeProtocol, request: Request, run: int, stream: Stream) -> None:
    """Sends it as soon as there is time for it. Raises Refused."""
    node.take_evidence(run, authority.payer(request), stream)
