"""activate: a job's wrapper says that the job is about to start. Counting begins with the job's first instruction."""

from __future__ import annotations

from condor_joblens.commands import authority
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import text


def find(node: NodeProtocol, request: Request) -> int:
    """The run in whose slot the calling process is. Raises Refused."""
    arguments = request.arguments
    return node.run_of_process(request.pid, arguments.get("slot", ""), arguments.get("scratch", ""))


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Begins to count; tells the level. Raises Refused.

    A job whose wrapper was not answered could call itself, and hide what it has done.
    """
    state = node.runs.state
    if state["activated"][run] and node.next_job(run, request.pid):
        run = find(node, request)
        authority.check(node, request, run)
    if state["activated"][run] or not node.only_wrapper_ran(run):
        raise Refused("the job has started already")
    state["activated"][run] = True
    node.begin_counting(run, request.pid)
    answer = {"level": text(node.runs.rows["level"][run])}
    python = node.traces_python(run)
    return {**answer, "python": python} if python else answer
