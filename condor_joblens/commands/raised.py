"""raised: a Python of a job ends of an exception. As with `say`, it is believed for its own run alone."""

from __future__ import annotations

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Request


def find(node: NodeProtocol, request: Request) -> int:
    """The run in whose slot the calling process is. Raises Refused."""
    return node.run_of_process(request.pid, "", "")


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Keeps the traceback, for the sentence of the run's death and as an artifact. Raises Refused.

    The answer has a field `variables` if the process is to tell its local variables as well (variables.py).
    """
    said = request.arguments
    wants = node.has_raised(run, request.pid, said["line"], said.get("place", ""), said["traceback"])
    return {"variables": "wanted"} if wants else {}
