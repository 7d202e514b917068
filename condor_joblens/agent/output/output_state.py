"""What joblensd publishes, in one place."""

from __future__ import annotations

from condor_joblens.agent.node import Node
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.agent.output.job_ads import JobAds
from condor_joblens.agent.output.program_stats import ProgramStats
from condor_joblens.agent.output.publish_rows import RowPublisher
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.output.run_history import RunHistory
from condor_joblens.agent.output.unattributed_servers import UnattributedServers
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.shm.artifacts import ArtifactWriter
from condor_joblens.shm.history import HistoryWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer


class Output:
    """Rows, events and artifacts in shared memory, job ads, files of program statistics and nobody's requests."""

    def __init__(
        self,
        node: Node,
        rows: Writer,
        ring: EventWriter,
        artifacts: ArtifactWriter,
        watches: Watches,
        history: HistoryWriter,
    ) -> None:
        self.rows = RowPublisher(node, rows, ring)
        self.events = EventEmitter(node, ring)
        self.artifacts = RunArtifacts(node, self.events, artifacts)
        self.history = RunHistory(node, history)
        self.job_ads = JobAds(node, watches)
        self.program_stats = ProgramStats(node, artifacts)
        self.unattributed_servers = UnattributedServers(node)
