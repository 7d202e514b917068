"""joblensd as a user of its own: what it takes over, what it still can do, and the way back to root."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ground import BPFFS, Cgroup, Ground, Slot, in_child, remove_cgroup

from condor_joblens.agent import own_user
from condor_joblens.agent.config_reader import ConfigReader
from condor_joblens.common import bpffs as bpffs_module
from condor_joblens.common import privilege
from condor_joblens.common.ownership import give
from condor_joblens.common.privilege import CAPABILITIES, NEEDED
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.policy.policy_files import are_readable, read_policies

OWN, CONDOR, ALICE = 64003, 990, 12345
COMPLETE: Any = SimpleNamespace(are_complete=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach: `run` is joblensd's, `log` is HTCondor's."""
    with tempfile.TemporaryDirectory(prefix="joblens-own-user", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        for folder in ("run", "run/ads", "run/artifacts", "artifacts", "log"):
            (place / folder).mkdir()
        for file in ("run/slots.state", "run/ads/7.ad", "secret"):
            (place / file).touch(0o600)
        os.chown(place / "log", CONDOR, CONDOR)
        yield place


@pytest.fixture
def its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pwd.struct_passwd(("joblens-agent", "x", OWN, OWN, "", "/", "/bin/false"))
    monkeypatch.setattr(privilege, "user", lambda name: found if name == privilege.AGENT_USER else None)


@pytest.fixture
def pins(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(bpffs_module, "PINS", str(BPFFS / name))
    before = BPFFS.stat()
    yield BPFFS / name
    with contextlib.suppress(FileNotFoundError):
        (BPFFS / name).rmdir()  # it stays for the next joblensd, without a pin
    os.chown(BPFFS, before.st_uid, before.st_gid)
    BPFFS.chmod(stat.S_IMODE(before.st_mode))


@pytest.fixture
def base(name: str) -> Iterator[Path]:
    """A base with a slot in it."""
    base = Ground.place(name)
    (base / "condor_slot1").mkdir(parents=True)
    yield base
    remove_cgroup(base)


def become(place: Path, *, hybrid: bool = False, confined: bool = True, kept: tuple[str, ...] = tuple(NEEDED)) -> str:
    """As joblensd does."""
    tree = Tree("/sys/fs/cgroup", "", hybrid)
    reason = own_user.become(COMPLETE, tree, str(place / "run"), str(place / "log"), [], str(place / "artifacts"))
    if confined:
        privilege.keep_only(kept)
    return reason


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


def facts() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.usefixtures("its_user", "pins")
@pytest.mark.parametrize("kept", [(), tuple(NEEDED)], ids=["none", "where it loads programs"])
def test_it_has_no_capability_but_to_load_programs_and_no_file_of_roots(place: Path, kept: tuple[str, ...]) -> None:
    def live() -> None:
        assert become(place, kept=kept) == "" == become(place, kept=kept)
        said = facts()
        assert set((said["Uid"] + "\t" + said["Gid"]).split()) == {str(OWN)} and said["Groups"] == ""
        held = sum(1 << CAPABILITIES[name] for name in kept)
        assert {int(said[each], 16) for each in ("CapPrm", "CapEff")} == {held} and said["NoNewPrivs"] == "1"
        assert int(said["CapBnd"], 16) == 0
        for flags in (os.O_RDONLY, os.O_WRONLY):
            with pytest.raises(PermissionError):
                os.open(place / "secret", flags)
        with pytest.raises(PermissionError):
            (place / "new").touch()
        for act in (lambda: os.setresuid(0, 0, 0), lambda: os.kill(1, 0), lambda: os.chown(place / "run", 0, 0)):
            with pytest.raises(PermissionError):
                act()
        (place / "run" / "new").touch()
        (place / "artifacts" / "new").touch()
        assert (place / "run" / "ads" / "7.ad").read_text() == ""

    in_child(live)


@pytest.mark.usefixtures("its_user")
@pytest.mark.parametrize("mode", [0o700, 0o1777], ids=oct)
def test_counters_and_pins_are_taken_over_in_both_directions(
    place: Path, pins: Path, name: str, base: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(BPFFS, 0, 0)  # tests that were ended from outside leave their own
    BPFFS.chmod(mode)
    cgroup = Cgroup(base / "condor_slot1")

    def as_root() -> None:
        privilege.keep_only(tuple(NEEDED))
        ground = Ground(name)
        assert ground.tracer.take(cgroup.cgroup_id, 1) is not None

    def as_its_own() -> None:
        assert become(place) == ""
        ground = Ground(name)
        assert (ground.tracer.adopted, ground.tracer.warnings) == (True, [])
        slot = Slot(cgroup.path, ground.tracer)
        assert slot.totals()["process_forked"] == 2
        slot.start_io()  # what is pinned later
        assert ground.tracer.warnings == []

    def as_root_again() -> None:
        assert "takes root" in become(place, hybrid=True)
        ground = Ground(name)
        assert (ground.tracer.adopted, ground.tracer.warnings) == (True, [])
        slot = Slot(cgroup.path, ground.tracer)
        assert slot.totals()["process_forked"] == 5 and slot.io_totals()["syscall_read_bytes"] > 0
        ground.tracer.close()

    in_child(as_root)
    assert owners(pins) == owners(place / "run") == {0}
    cgroup.run("children", 2)
    monkeypatch.setattr(Ground, "delegate", staticmethod(lambda cgroup: None))  # it takes root, as HTCondor has
    in_child(as_its_own)
    assert owners(pins) == owners(place / "run") == {OWN}
    assert any(pins.rglob("io/complete")) and stat.S_IMODE(BPFFS.stat().st_mode) == (mode | 0o010)
    cgroup.run("children", 3)
    in_child(as_root_again)
    assert owners(place / "run") == {0} and not any(pins.rglob("links"))
    assert stat.S_IMODE(BPFFS.stat().st_mode) == mode


@pytest.mark.usefixtures("pins")
def test_what_a_removed_user_has_left_is_roots_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, its_user: None
) -> None:
    in_child(lambda: become(place))
    assert owners(place / "run") == {OWN}
    monkeypatch.setattr(privilege, "user", lambda name: None)
    in_child(lambda: "no user" in become(place) or pytest.fail("it is no user"))
    assert owners(place / "run") == {0}


@pytest.mark.usefixtures("its_user", "pins")
@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda place: (place / "run" / "others").mkdir(), "not joblensd's: others"),
        (lambda place: os.chown(place / "run" / "slots.state", ALICE, ALICE), "not joblensd's: slots.state"),
        (lambda place: (place / "run").chmod(0o775), "may be written by others"),
        (lambda place: os.chown(place / "log", 0, 0), "log again"),
        (lambda place: place.chmod(0o700), "can't be read by the user joblens-agent"),
    ],
)
def test_where_it_can_not_be_its_own_it_stays_root(place: Path, spoil: Callable[[Path], None], said: str) -> None:
    spoil(place)

    def live() -> None:
        assert said in become(place)
        assert os.getresuid() == (0, 0, 0)

    before = owners(place / "run")
    in_child(live)
    assert owners(place / "run") == before


@pytest.mark.usefixtures("its_user", "pins")
def test_what_takes_other_users_must_have_been_started(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPLETE, "are_complete", False)
    in_child(lambda: "could not be started" in become(place) or pytest.fail("who else can?"))


def test_a_link_leads_nowhere_and_a_file_with_two_names_keeps_its_owner(place: Path) -> None:
    run = place / "run"
    os.link(place / "secret", run / "second")
    (run / "link").symlink_to(place / "log")
    (run / "ads" / "link").symlink_to(place / "secret")
    (run / "alices").touch()
    os.chown(run / "alices", ALICE, ALICE)
    give(str(run), {0, OWN}, OWN)
    assert (place / "secret").stat().st_uid == 0 and (place / "log").stat().st_uid == CONDOR
    assert (run / "alices").stat().st_uid == ALICE and (run / "link").lstat().st_uid == 0
    assert {(run / each).stat().st_uid for each in ("", "ads", "artifacts", "slots.state", "ads/7.ad")} == {OWN}
    (place / "folder").symlink_to(place / "log")
    give(str(place / "folder"), {CONDOR, 0}, OWN)
    give(str(place / "missing"), {0}, OWN)
    assert (place / "log").stat().st_uid == CONDOR


@pytest.mark.parametrize(
    ("mode", "owner", "is_room"),
    [(0o700, 0, True), (0o1777, OWN, True), (0o1777, ALICE, False), (0o777, 0, False), (0o775, OWN, False)],
)
def test_there_is_no_room_for_pins_where_others_can_change_them(
    place: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, is_room: bool
) -> None:
    monkeypatch.setattr(bpffs_module, "BPFFS", str(place / "run"))
    monkeypatch.setattr(bpffs_module, "PINS", str(place / "run" / "joblens"))
    (place / "run").chmod(mode)
    assert bpffs_module.has_room_for({0, OWN}) is bool(mode & stat.S_ISVTX or not mode & 0o022)
    (place / "run" / "joblens").mkdir()
    os.chown(place / "run" / "joblens", owner, owner)
    assert bpffs_module.has_room_for({0, OWN}) is is_room


def test_bpffs_lets_one_group_through_and_nobody_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "run"
    monkeypatch.setattr(bpffs_module, "BPFFS", str(folder))
    for before, during in ((0o700, 0o710), (0o770, 0o710), (0o755, 0o755)):
        folder.chmod(before)
        bpffs_module.let_through(OWN)
        bpffs_module.let_through(OWN)
        status = folder.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (during, OWN if during == 0o710 else 0)
        bpffs_module.let_no_longer_through(OWN)
        assert folder.stat().st_gid == 0 and stat.S_IMODE(folder.stat().st_mode) in (0o700, before)
    folder.chmod(0o750)
    os.chown(folder, 0, CONDOR)
    with pytest.raises(PermissionError):
        bpffs_module.let_through(OWN)


def test_policies_of_root_alone_are_read_by_root(place: Path) -> None:
    """Whoever asks does not say which folders."""
    folder = place / "policies.d"
    folder.mkdir(0o700)
    (folder / "10-site.lua").write_text('rule "all" { level = "io" }')
    (place / "config").write_text(f"JOBLENS_POLICY_DIR = {folder}\n")
    reader = ConfigReader(["/bin/cat", str(place / "config")])

    def live() -> None:
        privilege.become(OWN, OWN)
        assert not are_readable([str(folder)]) and read_policies([str(folder)])[0] == []
        assert reader.policies() == ([("10-site.lua", 'rule "all" { level = "io" }')], [])
        assert reader.read() == (place / "config").read_text()
        folder.stat()

    assert are_readable([str(folder), str(place / "missing")])
    in_child(live)
    reader.stop()
