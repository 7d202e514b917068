"""What commands from afar need of joblensd: the node's own key, and what the startd holds of a job's access point.

The key signs answers. Its public half is `NodeKey` in each job's JobLensUsage, which comes to the access point by
HTCondor's own way. It lies in JOBLENS_RUN_DIR, so it outlives joblensd and not the machine's uptime.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import startd_truth
from condor_joblens.common.errors import JobLensError
from condor_joblens.control.keys import key_at, public_half, text_of
from condor_joblens.control.verbs import Refused
from condor_joblens.control.warrants import Meant
from condor_joblens.model.metrics import text
from condor_joblens.publish import node_key
from condor_joblens.startd import access_points

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "node_key"


class RemoteCommands:
    """What commands/warrant.py needs (commands/node_protocol.py, Remote)."""

    def __init__(self, agent: Agent, key: Ed25519PrivateKey) -> None:
        self._agent = agent
        self.key = key

    def meant(self, run: int) -> tuple[Meant, bytes]:
        """For whom and for what a warrant has to be, and the key of the job's access point. Raises Refused."""
        node = self._agent.node
        job = startd_truth.job_of(self._agent, run)
        if job is None:
            startd_truth.ask(self._agent)
            raise Refused("the startd has not confirmed the job yet: ask again in some seconds")
        held = access_points.held(job)
        if held.global_job_id != text(node.runs.rows["global_job_id"][run]):
            raise Refused("the startd holds another job of this slot by now")
        return Meant(held.user, text(node.runs.rows["run"][run]), held.slot), held.key


def open_remote_commands(agent: Agent) -> RemoteCommands | None:
    """None if this node takes none, or can't: the log says why. Only if it does, `cryptography` is loaded."""
    key = _own_key(agent) if agent.node.config.remote_commands else None
    public = text_of(public_half(key)) if key is not None else ""
    agent.output.job_ads.node_key = public
    try:
        node_key.put(agent.node.config.run_dir, public)
    except OSError as error:
        agent.node.log(f"slots' ads may have another key of the node than jobs' ads have: {error.strerror}")
    return RemoteCommands(agent, key) if key is not None else None


def _own_key(agent: Agent) -> Ed25519PrivateKey | None:
    try:
        return key_at(os.path.join(agent.node.config.run_dir, FILE))
    except ImportError as error:
        agent.node.log(f"no commands from afar are taken: {error.name or error} is missing: make install EXTRAS=relay")
    except JobLensError as error:
        agent.node.log(f"no commands from afar are taken: the node's key can't be had ({error})")
    return None
