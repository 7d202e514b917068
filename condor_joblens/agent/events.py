"""What the kernel tells of slots, in its order: births and ends."""

from __future__ import annotations

from condor_joblens.agent import births, ends
from condor_joblens.agent.node import Node
from condor_joblens.tracer import layout
from condor_joblens.tracer.tracer import EVENTS_AT_A_TIME


def take(node: Node) -> None:
    """Everything the kernel has told since the last call, in its order."""
    while True:
        found = node.tracer.events()
        ending: dict[int, bool] = {}
        for event in found:
            kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
            if kind == layout.BORN:
                births.born(node, cgroup_id, event)
                continue
            run = node.runs.by_cgroup.get(cgroup_id)
            if run is None:
                continue
            if kind == layout.CGROUP_GONE:
                if run in ending:
                    ends.ended(node, {run: ending.pop(run)})
                ends.gone(node, run)
            else:
                ending[run] = ending.get(run, False) or kind == layout.EMPTY
        ends.ended(node, ending)
        if len(found) < EVENTS_AT_A_TIME:
            return
