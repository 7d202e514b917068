"""Which slot a cgroup is for: HTCondor's names, taken apart again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs.cgroups import Slot, Tree, depths_of, parse_slot, slot_cgroup

EXECUTE = "/var/lib/condor/execute"


@pytest.mark.parametrize(
    "name, slot",
    [
        ("_var_lib_condor_execute_slot1_3@node.example.org.slice", Slot("slot1_3", EXECUTE)),
        ("condor_var_lib_condor_execute_slot1_3@node.example.org", Slot("slot1_3", EXECUTE)),
        ("_var_lib_condor_execute_slot7.slice", Slot("slot7", EXECUTE)),
        ("_scratch_pilot_slot1_1@inner.slice", Slot("slot1_1", "")),
        ("_scratch_backfill2_1@node.slice", Slot("backfill2_1", "")),
        ("system.slice", None),
        ("condor.service", None),
        ("user@1000.service", None),
        ("_var_lib_condor_execute_", Slot("", EXECUTE)),
        ("", None),
    ],
)
def test_names_that_were_seen(name: str, slot: Slot | None) -> None:
    assert parse_slot(name, [EXECUTE]) == slot


def test_a_job_of_the_local_universe_has_a_number_of_its_own() -> None:
    local = "/var/lib/condor/spool/local_univ_execute"
    assert parse_slot("_var_lib_condor_spool_local_univ_execute_12.slice", [EXECUTE, local]) == Slot("local_12", local)


PARTS = st.lists(st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True), min_size=1, max_size=5)
FOLDERS = PARTS.map(lambda parts: "/" + "/".join(parts))
SLOTS = st.from_regex(r"(slot|backfill)[0-9]{1,3}(_[0-9]{1,3})?", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9.-]{1,30}", fullmatch=True).filter(lambda host: not host.endswith(".slice"))


@given(FOLDERS, SLOTS, HOSTS, st.booleans())
def test_what_a_starter_names_is_found_again(execute: str, slot: str, host: str, newer: bool) -> None:
    stem = f"{execute}_{slot}@{host}".replace("/", "_")
    name = f"{stem}.slice" if newer else f"condor{stem}"
    assert parse_slot(name, [execute]) == Slot(slot, execute)
    # without knowing where that startd works, the slot is still one
    found = parse_slot(name, [])
    assert found is not None and found.name == slot


@given(st.text(), st.lists(FOLDERS, max_size=3))
@example("condor_", [])
@example(".slice", ["/a"])
@example("_" * 5000 + "slot1", [])
def test_any_name_is_a_slot_or_none(name: str, executes: list[str]) -> None:
    found = parse_slot(name, executes)
    assert found is None or found.execute in ("", *executes)


def test_the_longer_of_two_execute_folders_wins() -> None:
    executes = ["/a", "/a/b"]
    assert parse_slot("_a_b_slot1@h.slice", executes) == Slot("slot1", "/a/b")
    assert parse_slot("_a_slot1@h.slice", executes) == Slot("slot1", "/a")


@pytest.mark.parametrize(
    "cgroup, outer",
    [
        ("htcondor/a_slot1.slice", "htcondor/a_slot1.slice"),
        ("htcondor/a_slot1.slice/a_slot1.scope", "htcondor/a_slot1.slice"),
        ("htcondor/a_slot1.slice/x_slot2.slice/deeper", "htcondor/a_slot1.slice"),
        ("htcondor", None),
        ("htcondors/a_slot1.slice", None),
        ("", None),
    ],
)
def test_the_outermost_slot_counts(cgroup: str, outer: str | None) -> None:
    assert slot_cgroup(cgroup, ["htcondor"]) == outer


def machine(root: Path, mounts: str, own: str) -> str:
    """A /proc as the module reads it."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    return str(root)


def test_a_machine_with_version_2_alone(tmp_path: Path) -> None:
    root = machine(tmp_path, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "0::/system.slice/condor.service\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cgroup.procs").touch()
    tree = Tree.find(root)
    assert (tree.mount, tree.own, tree.hybrid) == ("/sys/fs/cgroup", "system.slice/condor.service", False)
    assert tree.path("htcondor/x") == "/sys/fs/cgroup/htcondor/x"


def test_a_hybrid_machine(tmp_path: Path) -> None:
    mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    tree = Tree.find(machine(tmp_path, mounts, "4:cpu:/x\n0::/\n"))
    assert (tree.mount, tree.own, tree.hybrid) == ("/sys/fs/cgroup/unified", "", True)


def test_a_machine_with_version_1_alone(tmp_path: Path) -> None:
    mounts = (
        "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n"
    )
    own = "9:memory:/elsewhere\n4:cpu,cpuacct:/system.slice/condor.service\n1:name=systemd:/x:y\n"
    tree = Tree.find(machine(tmp_path, mounts, own))
    assert (tree.mount, tree.own, tree.version) == ("/sys/fs/cgroup/cpu,cpuacct", "system.slice/condor.service", 1)
    assert not tree.hybrid, "HTCondor does make cgroups there"


def test_a_machine_without_any_tree_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JobLensError, match="mount -t cgroup2"):
        Tree.find(machine(tmp_path, "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n", "4:cpu:/x\n"))


def test_depths_count_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("condor_joblens.jobs.cgroups.INITIAL_NAMESPACE", Path("/proc/self/ns/cgroup").stat().st_ino)
    assert depths_of(["", "htcondor", "system.slice/htcondor"]) == [0, 1, 2]
    monkeypatch.setattr("condor_joblens.jobs.cgroups.INITIAL_NAMESPACE", 1)
    assert depths_of(["htcondor"]) is None


def test_the_cgroup_of_a_process_that_is_gone() -> None:
    assert Tree("/sys/fs/cgroup", "", hybrid=False).cgroup_of(2**22 + 1) is None
