"""variables: local variables of a Python of a job that has just told of the exception which ends it (raised.py)."""

from __future__ import annotations

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Request


def find(node: NodeProtocol, request: Request) -> int:
    """The run in whose slot the calling process is. Raises Refused."""
    return node.run_of_process(request.pid, "", "")


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Keeps them with the traceback. Raises Refused."""
    node.has_variables(run, request.pid, request.arguments["lines"])
    return {}
