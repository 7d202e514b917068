"""What joblensd and its helper can still do to files: even as root, and where the kernel has Landlock (from 5.13)."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ground import in_child, kernel_version

from condor_joblens.agent.confine import confine
from condor_joblens.agent.helpers import Helpers
from condor_joblens.common import landlock
from condor_joblens.common.own_process import HelperLost
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.client import Helper
from condor_joblens.owner_files.operations import Ad, AdWrite
from condor_joblens.publish.updatead import WriteResult

OWN, CONDOR, ALICE = 64001, 990, 12345
ALLOWED = AllowedIds(1000, (CONDOR,), 1000, (CONDOR,))

pytestmark = pytest.mark.guest


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="joblens-landlock", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        for folder in ("run", "log", "execute", "elsewhere"):
            (place / folder).mkdir()
        for folder in ("log", "execute"):
            os.chown(place / folder, CONDOR, CONDOR)
        yield place


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except PermissionError:
        return True
    return False


def node(place: Path, log: list[str]) -> Any:
    config = SimpleNamespace(run_dir=str(place / "run"), artifact_dir=str(place / "artifacts"))
    tree = SimpleNamespace(mount=str(place / "cgroup"), path=lambda name: str(place / "cgroup" / name))
    tracer = SimpleNamespace(is_exact=True, source=b"bpf")
    return SimpleNamespace(config=config, tree=tree, tracer=tracer, executes=[str(place / "execute")], log=log.append)


def test_joblensd_changes_its_own_files_alone(place: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])

    def live() -> None:
        said: list[str] = []
        confine(node(place, said), Helpers(SimpleNamespace()), str(place / "log"))  # type: ignore[arg-type]
        (place / "run" / "rows.new").write_text("rows")
        os.rename(place / "run" / "rows.new", place / "run" / "rows")
        (place / "run" / "ads").mkdir()
        os.unlink(place / "run" / "rows")
        os.close(os.open(os.devnull, os.O_WRONLY))
        subprocess.run(["/bin/true"], stdout=subprocess.DEVNULL, check=True)
        assert Path("/etc/shadow").exists() and Path("/etc/passwd").read_text()
        has_it = landlock.version() > 0
        assert bool(said) != has_it
        elsewhere = place / "elsewhere"
        changes: list[Callable[[], object]] = [
            lambda: (elsewhere / "new").write_text(""),
            lambda: os.open("/etc/passwd", os.O_WRONLY | os.O_APPEND),
            (elsewhere / "made").mkdir,
            lambda: os.symlink("/", elsewhere / "link"),
            lambda: os.link("/etc/passwd", elsewhere / "passwd"),
            lambda: os.rename(place / "run" / "ads", elsewhere / "ads"),
            lambda: (place / "execute").rmdir(),
        ]
        for change in changes if has_it else ():
            with pytest.raises(OSError):
                change()
        assert os.listdir(elsewhere) == []
        if landlock.version() >= 4:
            assert refused(lambda: socket.socket().bind(("127.0.0.1", 0)))
            assert refused(lambda: socket.socket().connect(("127.0.0.1", 9)))
        if landlock.version() >= 6:
            assert refused(lambda: os.kill(stranger.pid, signal.SIGTERM))
        assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE

    try:
        in_child(live)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_its_helper_opens_what_is_in_execute_and_the_logs_folder(place: Path) -> None:
    helper = Helper(ALLOWED, OWN, OWN)
    for folder in ("execute", "elsewhere"):
        for number, uid in ((7, ALICE), (8, CONDOR)):
            made = place / folder / f"dir_{number}"
            made.mkdir()
            (made / ".job.ad").write_text("A = 1\n")
            os.chown(made / ".job.ad", uid, uid)
            os.chown(made, uid, uid)
    known = os.open(place / "elsewhere" / "dir_7", os.O_RDONLY)
    try:
        assert helper.confine([str(place / "execute"), str(place / "log"), str(place / "missing")]) == bool(
            landlock.version()
        )
        found = helper.open_folders(str(place / "execute"), 7)
        assert found is not None
        assert helper.write_ads([AdWrite(found[0], "[A=1]", False)])[0].result is WriteResult.DONE
        assert (place / "execute/dir_7/.update.ad").read_text() == "JobLensUsage = [A=1]\n"
        file = helper.open_ad(found[0], Ad.JOB)
        assert file is not None and os.read(file, 100) == b"A = 1\n"
        os.close(helper.open_log(str(place / "log" / "JobLensdLog")))
        if landlock.version():
            assert helper.open_folders(str(place / "elsewhere"), 7) is None
            assert helper.open_ad(known, Ad.JOB) is None
            assert helper.write_ads([AdWrite(known, "[A=1]", False)])[0].result is WriteResult.DENIED
            assert not (place / "elsewhere/dir_7/.update.ad").exists()
        for each in {*found, file}:
            os.close(each)
    finally:
        os.close(known)
        helper.stop()


def test_another_execute_is_for_another_joblensd(place: Path) -> None:
    helpers = Helpers(Helper(ALLOWED, OWN, OWN))
    said: list[str] = []
    helpers.confine(node(place, said), str(place / "log"))
    execute, log = str(place / "execute"), str(place / "log")
    helpers.check([execute], log)
    helpers.check([], log)
    assert said == []
    if landlock.version():
        with pytest.raises(HelperLost, match="EXECUTE is another folder"):
            helpers.check([execute, str(place / "elsewhere")], log)
        with pytest.raises(HelperLost, match="the log's folder is another folder"):
            helpers.check([execute], str(place / "elsewhere"))
        (place / "execute").rename(place / "before")  # as a file system that is mounted later
        (place / "execute").mkdir()
        with pytest.raises(HelperLost):
            helpers.check([execute], log)
    helpers.owner_files.stop()  # type: ignore[attr-defined]


def test_which_kernels_have_it() -> None:
    """This machine's and the guests': all but Debian 11's."""
    assert landlock.version() >= 1 or kernel_version() < (5, 13)
