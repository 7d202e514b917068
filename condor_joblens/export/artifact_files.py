"""Artifacts as sinks send them: read from the run folder, whose files are joblensd's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from condor_joblens.shm.artifacts import FOLDER, ArtifactReader
from condor_joblens.sinks import ReadArtifact


def reader(run_dir: str) -> ReadArtifact:
    """Reads those of this run folder."""
    files = ArtifactReader(os.path.join(run_dir, FOLDER))

    def read(name: str) -> tuple[Mapping[str, Any], bytes]:
        about, content = files.read(name)
        head = {
            "Artifact": about.name,
            "ArtifactKind": about.kind,
            "ContentType": about.content_type,
            "ContentEncoding": about.content_encoding,
            "Run": about.run,
            "RunNumber": about.run_number,
            "Owner": about.owner,
            "BeginTime": about.begun,
            "EndTime": about.ended,
            "Length": about.length,
            "Sha256": about.sha256.hex(),
        }
        return {"head": head, "sinks": {part.strip().lower() for part in about.sinks.split(",")} - {""}}, content

    return read
