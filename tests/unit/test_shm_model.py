"""The two protocols in shared memory, proved by spin; and that spin would have found what the fences prevent."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MODELS = Path(__file__).parents[1] / "model"


def verify(model: str, folder: Path, *options: str, liveness: bool = False) -> tuple[int, str]:
    """How many errors spin finds, and what it says. Every state is looked at."""
    shutil.copy(MODELS / model, folder)
    run = {"cwd": folder, "check": True, "capture_output": True, "text": True, "timeout": 300}
    subprocess.run(["spin", *options, "-a", model], **run)  # type: ignore[call-overload]
    kind = ["-DNFAIR=3"] if liveness else ["-DSAFETY", "-DNOCLAIM"]
    subprocess.run(["gcc", "-O2", "-w", *kind, "-o", "pan", "pan.c"], **run)  # type: ignore[call-overload]
    done = subprocess.run(["./pan", "-m1000000", *(["-a", "-f"] if liveness else [])], **run)  # type: ignore[call-overload]
    said = str(done.stdout)
    assert "max search depth too small" not in said and "out of memory" not in said, said
    found = re.search(r"errors: (\d+)", said)
    assert found, said
    return int(found[1]), said


@pytest.mark.parametrize("model", ["rows.pml", "events.pml"])
def test_no_reader_ever_sees_a_torn_record_or_misses_one_unknown(model: str, tmp_path: Path) -> None:
    errors, said = verify(model, tmp_path)
    assert errors == 0, said
    states = re.search(r"(\d+(?:e\+\d+)?) states, stored", said)
    assert states and float(states[1]) > 1000, "the model does something"


def test_a_slow_reader_of_rows_ends_although_the_writer_never_does(tmp_path: Path) -> None:
    errors, said = verify("rows.pml", tmp_path, liveness=True)
    assert errors == 0, said


def test_the_assumption_under_which_it_ends_is_needed(tmp_path: Path) -> None:
    errors, said = verify("rows.pml", tmp_path, "-DNO_ASSUMPTION", liveness=True)
    assert errors > 0 and "acceptance cycle" in said


@pytest.mark.parametrize("model", ["rows.pml", "events.pml"])
def test_without_the_fence_a_torn_record_is_found(model: str, tmp_path: Path) -> None:
    errors, said = verify(model, tmp_path, "-DNO_FENCE")
    assert errors > 0 and "assertion violated" in said
