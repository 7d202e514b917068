"""python: a Python of a job begins, whose calls are to be recorded. It gets a ring in memory; nothing comes from it."""

from __future__ import annotations

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Request, WithFile


def find(node: NodeProtocol, request: Request) -> int:
    """The run in whose slot the calling process is. Raises Refused."""
    return node.run_of_process(request.pid, "", "")


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """The ring, and what is to be recorded.

    Patterns of files are in fields that begin with `file`, functions with names of their arguments in `call`. Neither
    of them means all calls. `values`, `raised` and `limited` are there if wanted.

    Raises Refused.
    """
    said, ring = node.python_ring(run, request.pid, request.arguments["version"])
    return WithFile(said, ring)
