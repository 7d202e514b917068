"""What joblensd knows from the startds of this node, and which starters it has seen begin."""

from __future__ import annotations

from dataclasses import dataclass, field

from condor_joblens.jobs.starter_folders import StarterFolders
from condor_joblens.startd.startd_answers import SlotJob
from condor_joblens.startd.startd_client import StartdClient


@dataclass
class StartdState:
    """The last answer, and what it is needed for. Without a client nobody is asked, and a job's ad counts as it is."""

    client: StartdClient | None = None
    folders: StarterFolders | None = None
    jobs: dict[str, list[SlotJob]] = field(default_factory=dict)  # by slot, of the last answer
    seen: dict[int, float] = field(default_factory=dict)  # starter -> CLOCK_MONOTONIC at which its folder was made
    told: str | None = None  # why the startds can't be asked, as last logged; None: nothing yet

    def timeout(self, now: float) -> float:
        """Seconds until the client has something to do."""
        wait = None if self.client is None else self.client.timeout(now)
        return 3600.0 if wait is None else wait
