"""Which capabilities joblensd keeps: those to load programs, if nobody else does that for it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from condor_joblens.agent import priority
from condor_joblens.agent.helpers import Helpers
from condor_joblens.common.privilege import NEEDED


def test_their_cpu_is_that_of_all_and_of_what_they_have_started() -> None:
    ours = {name: Mock(**{"cpu_seconds.return_value": 1.0}) for name in ("policy_children", "lookers", "readers")}
    files = Mock(**{"cpu_seconds.return_value": 0.5})
    assert Helpers(files, **ours).cpu_seconds() == 3.5
    others = {name: Mock(**{"cpu_seconds.return_value": 0.25}) for name in ("tracers", "loaders", "recorder_readers")}
    busy = Mock(pid=os.getpid())
    assert Helpers(files, lender=busy, **ours, **others).cpu_seconds() > 4.25


def node(source: bytes) -> Any:
    return SimpleNamespace(tracer=Mock(source=source, **{"load_by.return_value": 4711}), log=Mock())


def test_without_who_loads_joblensd_does() -> None:
    it = node(b"bpf")
    assert Helpers(Mock()).load_for(it) == tuple(NEEDED)
    it.tracer.load_by.assert_not_called()


def test_who_loads_has_them_and_whom_joblensd_waits_for_has_its_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    it, loaders, weighed = node(b"bpf"), Mock(), Mock()
    monkeypatch.setattr(priority, "weigh", weighed)
    assert Helpers(Mock(), loaders=loaders).load_for(it) == ()
    it.tracer.load_by.assert_called_once_with(loaders)
    weighed.assert_called_once_with(4711, it.log)


def test_where_nothing_is_loaded_nobody_has_them() -> None:
    loaders = Mock()
    helpers = Helpers(Mock(), loaders=loaders)
    assert helpers.load_for(node(b"procfs")) == () and helpers.loaders is None
    loaders.close.assert_called_once_with()
