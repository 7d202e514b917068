"""What `joblens doctor` says of sinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.cli.checks import sinks
from condor_joblens.cli.checks.checked_node import State
from condor_joblens.sinks import Diagnosis, Sink
from condor_joblens.sinks.registry import SinkConfig, configure


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


class Hostile(Sink):
    """A plug-in that answers as nobody should."""

    name = "hostile"

    def check(self) -> Iterator[Diagnosis]:
        what = self.settings["what"]
        if what == "exits":
            os._exit(3)
        if what == "hangs":
            time.sleep(1000)
        if what == "floods":
            yield from (Diagnosis(True, "x" * 2000) for _ in range(10_000))
        if what == "unprintable":
            yield Diagnosis(True, "\x1b[2Jall is well\n")


@pytest.mark.parametrize("what", ["exits", "hangs", "floods", "unprintable"])
def test_a_plug_ins_answer_is_text_and_nothing_else(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """It is another user's process, and doctor is root's."""
    monkeypatch.setattr(sinks, "service_ids", lambda: None)
    monkeypatch.setattr(sinks, "SECONDS", 3.0)
    (finding,) = sinks._tried(SinkConfig("hostile", Hostile, {"what": what}))
    if what == "unprintable":
        assert finding.text == "hostile: \\x1b[2Jall is well\\n"
    else:
        assert finding.state is State.FAIL and "does not answer" in finding.text


@pytest.mark.parametrize(
    "said", [b"", b"7", b"null", b"[[]]", b'[["ok"]]', b'[["fine", "a", "b"]]', b"\xff", b"[" * 100_000]
)
def test_no_answer_makes_doctor_fail(said: bytes) -> None:
    (finding,) = sinks._findings("kafka", said)
    assert finding.state is State.FAIL
