"""ask: root is told the cgroup of a running job, to ask about it by a BPF program of his own (condor_joblens/ask)."""

from __future__ import annotations

from condor_joblens.commands import find_run
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Refused, Request


def find(node: NodeProtocol, request: Request) -> int:
    """The run that is meant. Raises Refused."""
    return find_run.of(node, request)


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """The folder of its cgroup. Raises Refused if this node is not to be asked so."""
    if not node.config.ask:
        raise Refused("this node is not asked by programs of administrators: set JOBLENS_ASK = true")
    node.log(f"{node.describe(run)}: root asks about it by a BPF program of his own")
    return {"cgroup": node.cgroup(run)}
