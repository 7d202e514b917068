"""Which run a person means."""

from __future__ import annotations

import numpy as np

from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.metrics import text

NAMES = ("job_id", "global_job_id", "run", "slot")
"""Columns by which a person can name a run; besides, a cluster and a slot with its host."""


def of(node: NodeProtocol, request: Request) -> int:
    """The run that a request is about: the one of its warrant, else the one that it names. Raises Refused."""
    return by_name(node, request.arguments["job"]) if request.vouched is None else request.vouched.run


def by_name(node: NodeProtocol, name: str) -> int:
    """The living run that `name` means: 12.0, 12, a GlobalJobId, a run, a slot with or without its host.

    Raises Refused if there is none, or more than one.
    """
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
        raise Refused(f"no job {name[:60]} runs on this node")
    if found.sum() > 1:
        some = ", ".join(text(job) for job in rows["job_id"][runs[found]][:5].tolist())
        raise Refused(f"{name[:60]} means several jobs here, say which: {some}")
    return int(runs[found][0])
