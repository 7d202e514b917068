"""A node that has artifacts, and sends them to the hub of a test."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hub_server import Hub
from sinks import make

from condor_joblens.export import artifact_files
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import FOLDER, ArtifactLimits, ArtifactWriter
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink


class Node:
    """Artifacts in a folder, and the sink that sends them; `name` has a token of the hub."""

    def __init__(self, hub: Hub, folder: Path, name: str = "node1") -> None:
        self.writer = ArtifactWriter(str(folder / FOLDER), ArtifactLimits(4 << 20, 64 << 20, 1e6))
        self.sink = make(
            HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / name),
            ARTIFACTS="profile, off_cpu, hang, traceback, recorder",
        )  # fmt: skip
        self.sink._artifacts._read = artifact_files.reader(str(folder))
        self.name = name

    def event(self, run: str, kind: str, content: bytes, owner: str = "alice") -> Record:
        """Keeps one, and returns the record of its event."""
        about = Artifact(kind, "x/y", 1, 1.7e9, 1.7e9 + 60, run=run, owner=owner)
        name = self.writer.add(about, [content]).name
        said: dict[str, Any] = {"Type": "event", "Id": f"{self.name}/a/{name}", "Schema": 1, "Node": self.name}
        said |= {"Time": time.time(), "Kind": "Artifact", "Run": run, "GlobalJobId": run[:-2], "RunNumber": 1}
        said |= {"Artifact": name, "ArtifactKind": kind, "Bytes": len(content)}
        line = json.dumps(said, separators=(",", ":")).encode()
        return Record(RecordKind.EVENT, str(said["Id"]), run, said["Time"], line)
