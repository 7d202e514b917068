"""Which run a person means."""

from __future__ import annotations

import numpy as np

from condor_joblens.commands import authority
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import text

NAMES = ("job_id", "global_job_id", "run", "slot")
"""Columns by which a person can name a run; besides, a cluster and a slot with its host."""


def of(node: NodeProtocol, request: Request) -> int:
    """The run that a request is about: the one of its warrant, else the one that it names. Raises Refused."""
    return named(node, request) if request.vouched is None else request.vouched.run


def named(node: NodeProtocol, request: Request) -> int:
    """The living run that is named: 12.0, 12, a GlobalJobId, a run, a slot with or without its host.

    Of several it is the caller's own, if there is one. Raises Refused if there is none, or more than one.
    """
    name: str = request.arguments["job"]
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs]]
    rows, encoded = node.runs.rows, name.encode("utf-8", "replace")
    found: np.ndarray = np.zeros(len(runs), "?")
    for column in NAMES:
        found |= rows[column][runs] == encoded
    found |= rows["slot"][runs] == encoded.partition(b"@")[0]
    if name.isdigit():
        found |= np.char.startswith(rows["job_id"][runs], encoded + b".")
    if not found.any():
        raise Refused(f"no job {name[:60]} runs on this node; if it ran here and has ended, `joblens job` tells of it")
    meant = runs[found].tolist()
    if len(meant) > 1:
        own = meant if request.uid == 0 else [run for run in meant if authority.is_owner(node, request, run)]
        if len(own) != 1:
            # others' jobs are not named to him
            some = ", ".join(text(job) for job in rows["job_id"][own[:5]].tolist())
            some += f", and {len(own) - 5} more" if len(own) > 5 else ""
            raise Refused(f"{name[:60]} means several jobs here, say which{': ' + some if some else ''}")
        meant = own
    return int(meant[0])
