"""How little the tracer needs, and what it says where it has less."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ground as grounds
import pytest
from ground import BPFFS, Ground, Slot, in_child, remove_cgroup

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.privilege import CAPABILITIES, as_owner, keep_only
from condor_joblens.tracer.bpf import Tracer


@pytest.fixture
def base(name: str) -> Iterator[Path]:
    """A base that is there already, as HTCondor's is."""
    base = Ground.place(name)
    base.mkdir()
    yield base
    remove_cgroup(base)


@pytest.mark.guest
def test_bpf_and_perfmon_are_enough(name: str, base: Path) -> None:
    def load() -> None:
        keep_only(("CAP_BPF", "CAP_PERFMON"))
        ground = Ground(name)
        assert ground.tracer.warnings == [] and ground.tracer.pins() is not None
        slot = ground.slot()
        slot.start_io()
        # kprobes take more, which joblensd has when it starts
        by_kprobes = {"requests to FUSE"} if grounds.kernel_version() < (6, 12) else set()
        assert grounds.known_to_be_missing() | by_kprobes >= set(ground.tracer.missing)
        assert ground.tracer.failing.is_attached >= grounds.hooks_functions()
        slot.run("children", 3)
        totals = slot.totals(connections=True)
        assert (totals["process_forked"], totals["process_exited"]) == (3, 4)
        assert ground.tracer.events()[0]["name"] == b"condor_slot1"
        # it ends, and leaves all of it in the kernel

    def adopt() -> None:
        keep_only(("CAP_BPF", "CAP_PERFMON"))
        ground = Ground(name)
        assert ground.tracer.adopted and ground.tracer.failing.is_attached >= grounds.hooks_functions()
        slot = Slot(base / "condor_slot1", ground.tracer)
        slot.run("children", 2)
        assert slot.io_totals()["syscall_read_bytes"] > 5 * 3000
        assert slot.totals()["process_forked"] == 5
        ground.tracer.close()
        assert not ground.pins.exists()

    in_child(load)
    in_child(adopt)


@pytest.mark.parametrize("kept", [(), ("CAP_PERFMON",), ("CAP_SETUID", "CAP_SETGID")], ids=str)
def test_without_them_one_line_says_so(name: str, kept: tuple[str, ...]) -> None:
    def live() -> None:
        keep_only(kept)
        with pytest.raises(JobLensError) as refused:
            Tracer(8, BPFFS / name)
        (line,) = str(refused.value).splitlines()
        assert "CAP_BPF" in line and "CAP_PERFMON" in line

    in_child(live)
    assert not (BPFFS / name).exists()


def test_no_capability_comes_back() -> None:
    def live() -> None:
        keep_only(("CAP_BPF",))
        wanted = 1 << CAPABILITIES["CAP_BPF"]
        fields = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
        for field in ("CapEff", "CapPrm", "CapBnd"):
            assert int(fields[field], 16) == wanted, field
        assert int(fields["CapInh"], 16) == 0
        # not by a program either, whatever root is to it
        mask = os.popen("grep CapEff /proc/self/status").read().split()[1]
        assert int(mask, 16) == wanted

    in_child(live)


@pytest.mark.parametrize("mode", [0o600, 0o640], ids=oct)
def test_as_owner_is_no_more_than_the_owner(mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "secret").touch()
        (folder / "secret").chmod(mode)
        folder.chmod(0o777)

        def live() -> None:
            os.setgroups([0])  # as condor_master leaves it to its daemons
            keep_only(("CAP_SETUID", "CAP_SETGID"))
            with as_owner(12345, 12345):
                with pytest.raises(PermissionError):
                    (folder / "secret").read_text()
                (folder / "theirs").touch()
            assert (folder / "secret").read_text() == ""
            assert (folder / "theirs").stat().st_uid == 12345

        in_child(live)
