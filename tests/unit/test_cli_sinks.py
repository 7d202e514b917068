"""What `joblens doctor` says of sinks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from condor_joblens.cli.checks import sinks
from condor_joblens.cli.checks.checked_node import State
from condor_joblens.sinks.registry import configure


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_file_that_root_may_read_and_joblens_may_not_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "service_ids", lambda: (65534, 65534))
    authority = tmp_path / "ca.pem"
    authority.write_text("certificate\n")
    authority.chmod(0o600)
    macros = {"JOBLENS_SINK_OTLP_URL": "https://127.0.0.1:1", "JOBLENS_SINK_OTLP_AUTHORITY": str(authority)}
    (config,), _ = configure(["otlp"], macros)
    (finding,) = sinks._tried(config)
    assert finding.state is State.WARN and f"_AUTHORITY = {authority} may not be read" in finding.text
    assert finding.remedy == "chgrp joblens and chmod 640 it"
    assert os.getuid() == 0
