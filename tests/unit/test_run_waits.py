"""How long calls of a run have waited: one artifact of it, which is kept anew until the run is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.output import run_artifacts
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.output.run_waits import RunWaits
from condor_joblens.model.levels import Level
from condor_joblens.profiles import call_waits
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.sensors import Io

READ, OPEN = 0, 2
"""Classes of calls."""


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made, folder = make(tmp_path, monkeypatch), str(tmp_path / "artifacts")
    output = made.agent.output
    store = ArtifactWriter(folder, run_artifacts.limits(made.node.config, folder))
    output.artifacts = RunArtifacts(made.node, output.events, store)
    return made


def waits_of(**counts: int) -> np.ndarray:
    found: np.ndarray = np.zeros((), map_layout.CALL_WAITS)
    found["waits"][32 * READ + 9] = counts.get("read", 0)
    found["long_ns"][READ] = 2_000_000 * counts.get("read", 0)
    return found


def counting(it: Made, run: int, **calls: int) -> None:
    """What level io counts of the run from now on."""
    for name, count in calls.items():
        it.node.runs.rows[f"syscall_{name}_calls"][run] = count


def kept(it: Made, run: int) -> list[call_waits.CallWaits]:
    store = it.agent.output.artifacts.store
    number = int(it.node.runs.rows["run_number"][run])
    found = [each.name for each in store.stored(number) if each.name.endswith(f".{call_waits.KIND}")]
    reader = ArtifactReader(store.folder)
    return [call_waits.decode(reader.read(name)[1]) for name in found]


def begun(it: Made) -> tuple[int, RunWaits, Any, Any]:
    run = it.begin("1.0", Level.IO)
    sensor, array = Mock(spec=Io), Mock()
    sensor.keep_waits.return_value = array
    nothing = np.zeros(1, "?"), np.zeros(0, map_layout.IO_COUNTERS)
    it.node.tracer.sensors = {"io": Mock(sensor=sensor, **{"counters.return_value": nothing})}
    waits = RunWaits(it.node, it.agent.output.artifacts)
    counting(it, run, read=1000, open=5)
    waits.begin(run, 3)
    sensor.keep_waits.assert_called_once_with(3)
    return run, waits, sensor, array


def test_one_artifact_says_all_until_now(it: Made) -> None:
    run, waits, sensor, array = begun(it)
    number = int(it.node.runs.rows["run_number"][run])
    array.read.return_value = waits_of(read=3)
    counting(it, run, read=1010, open=5)
    waits.keep(number)
    counting(it, run, read=1100, open=6)
    array.read.return_value = waits_of(read=4)
    waits.end(number)
    (found,) = kept(it, run)
    assert set(found.classes) == {"Read", "Open"}
    assert (found.classes["Read"].did_not_wait, found.classes["Read"].long) == (96, 4)
    assert (found.classes["Read"].short, found.classes["Read"].long_ns) == (0, 8_000_000)
    assert (found.classes["Open"].did_not_wait, found.classes["Open"].long) == (1, 0)
    sensor.keep_no_waits.assert_called_once_with(array)
    waits.end(number)  # does nothing
    waits.keep(number)
    assert len(kept(it, run)) == 1


def test_a_wait_whose_call_is_not_counted_yet_makes_no_number_negative(it: Made) -> None:
    run, waits, _, array = begun(it)
    array.read.return_value = waits_of(read=3)
    waits.end(int(it.node.runs.rows["run_number"][run]))
    assert kept(it, run)[0].classes["Read"].did_not_wait == 0


def test_where_nothing_is_kept_of_waits_there_is_no_artifact(it: Made) -> None:
    run, waits, sensor, array = begun(it)
    array.read.side_effect = OSError(22, "Invalid argument")
    waits.end(int(it.node.runs.rows["run_number"][run]))
    sensor.keep_waits.return_value = None
    waits.begin(run, 3)
    waits.end(int(it.node.runs.rows["run_number"][run]))
    assert kept(it, run) == []
