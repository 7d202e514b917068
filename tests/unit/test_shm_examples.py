"""The examples of the documentation, as a third party would use them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from condor_joblens import shm
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import empty_rows
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    rows = empty_rows(2)
    rows["job_id"], rows["slot"], rows["cpu_seconds"] = [b"12.0", b"13.0"], [b"slot1_1", b"slot1_2"], [1.5, 2.25]
    Writer(str(tmp_path / "rows"), 8, os.getgid()).publish(rows, 1.0)
    events: np.ndarray = np.zeros(3, EVENT)
    events["kind"], events["text"] = EventKind.EXEC, [b"a", b"b", b"c"]
    EventWriter(str(tmp_path / "events"), 0, os.getgid()).append(events)
    return tmp_path


def test_rows_and_events_are_two_functions(run_dir: Path) -> None:
    assert shm.rows(str(run_dir))["job_id"].tolist() == [b"12.0", b"13.0"]
    [(found, missed, position)] = shm.events(run_dir=str(run_dir), seconds=0.05)
    assert (found["text"].tolist(), missed, position.sequence) == ([b"a", b"b", b"c"], 0, 3)
    assert list(shm.events(position, str(run_dir), seconds=0.05)) == []
    with pytest.raises(JobLensError, match="is not there"):
        shm.rows("/nonexistent")


def test_an_artifact_is_read_by_the_name_that_its_event_has(run_dir: Path) -> None:
    writer = ArtifactWriter(str(run_dir / "artifacts"), ArtifactLimits(1 << 20, 8 << 20, 60))
    kept = writer.add(Artifact("hang", "text/plain", 1, 0.0, 0.0), [b"it waits"])
    assert shm.artifact(kept.name, str(run_dir)) == (kept, b"it waits")
    with pytest.raises(JobLensError, match="is not there"):
        shm.artifact("1.hang", str(run_dir))


def test_the_reader_in_c_compiles_without_a_warning_and_reads(run_dir: Path) -> None:
    program = str(run_dir / "program")
    include = f"-I{REPOSITORY / 'condor_joblens' / 'shm'}"
    warnings = ["-Wall", "-Wextra", "-Werror", "-std=gnu99", "-O2"]
    subprocess.run(["gcc", *warnings, include, "-o", program, str(EXAMPLES / "rows.c")], check=True)
    done = subprocess.run([program, str(run_dir / "rows")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "slot1_1 12.0 1.500\nslot1_2 13.0 2.250\n")
    for path, words in (("events", "is no file of joblensd's"), ("missing", "is not there")):
        done = subprocess.run([program, str(run_dir / path)], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and words in done.stderr


def test_the_header_is_cplusplus_too(run_dir: Path) -> None:
    source = run_dir / "x.cc"
    source.write_text('#include "joblens_shm.h"\nint main() { return sizeof(joblens_header) == 200 ? 0 : 1; }\n')
    include = f"-I{REPOSITORY / 'condor_joblens' / 'shm'}"
    subprocess.run(["gcc", "-fsyntax-only", "-Wall", "-x", "c++", include, str(source)], check=True)


def test_the_example_in_python_runs(run_dir: Path) -> None:
    text = (EXAMPLES / "follow.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 11
    text = text.replace("rows()", f"rows({str(run_dir)!r})").replace(
        "seconds=60", f"seconds=0.1, run_dir={str(run_dir)!r}"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )  # fmt: skip
    assert done.stdout.splitlines() == ["2 jobs run here", "3 EXEC 0 a", "3 EXEC 0 b", "3 EXEC 0 c"]
