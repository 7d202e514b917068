"""joblensd becomes a user of its own, as soon as it has started what takes root.

Where something takes root for as long as joblensd lives, it stays root, and the log says why. In both cases it takes
over what the other one has left: files in JOBLENS_RUN_DIR, and what is pinned in the kernel.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterable

from condor_joblens.agent.flight_recorder import FOLDER as RECORDER
from condor_joblens.agent.helpers import Helpers
from condor_joblens.common import bpffs, privilege
from condor_joblens.common.daemon import owner_of
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.ownership import give
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.jobs.saved_ads import FOLDER as ADS
from condor_joblens.shm.artifacts import FOLDER as ARTIFACTS

OWN_FOLDERS = (ADS, ARTIFACTS, RECORDER)
"""In JOBLENS_RUN_DIR."""


def become(
    helpers: Helpers, tree: Tree, run_dir: str, log_folder: str, executes: Iterable[str], artifacts: str = ""
) -> str:
    """This process is AGENT_USER from now on, or else why it stays root. Nothing, and no reason, if it is not root.

    It keeps what it needs until it is confined (confine.py), and no right to files of others. `artifacts`: a folder
    that is joblensd's besides JOBLENS_RUN_DIR, and that root alone could move; empty: none. Raises JobLensError.
    """
    if os.geteuid() != 0:
        return ""
    found = privilege.user(privilege.AGENT_USER)
    uid, gid = (found.pw_uid, found.pw_gid) if found else (0, 0)
    reason = f"there is no user {privilege.AGENT_USER}: run systemd-sysusers, or `make install` again"
    if uid:
        reason = why_root(helpers, tree, log_folder) or _why_not_alone(run_dir, {0, uid})
    if not reason:
        try:
            _take_over(run_dir, uid, gid)
            give(artifacts, {0, uid}, uid)
            reason = _why_not_reached([run_dir, *executes], uid, gid)
        except OSError as error:
            reason = f"its files and pins can't be given to {privilege.AGENT_USER}: {error.strerror}"
    if not reason:
        _become(uid, gid)
    elif uid or (uid := _removed_user(run_dir)):
        _give_back([run_dir, artifacts], uid, gid)
    return reason


def _removed_user(run_dir: str) -> int:
    """Whose JOBLENS_RUN_DIR is, if that user is no more; else 0."""
    uid = os.stat(run_dir).st_uid
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return uid
    return 0


def why_root(helpers: Helpers, tree: Tree, log_folder: str) -> str:
    """What on this node takes root after the start; empty: nothing."""
    if tree.hybrid:
        return "HTCondor makes no cgroups on this machine, and to put jobs into cgroups of ours takes root"
    if not helpers.are_complete:
        return "what takes other users could not be started"
    owner = owner_of(log_folder)
    if owner is None or owner[0] == 0:
        return f"{log_folder} is root's, and joblensd could not open its log again"
    if hides_processes():
        return "/proc shows processes to root and their users alone (hidepid)"
    return ""


def hides_processes(mounts: str = "/proc/self/mounts") -> bool:
    """Whether /proc is mounted so that a user does not see other users' processes."""
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split() for line in file]
    options = [option for line in fields if line[1:3] == ["/proc", "proc"] for option in line[3].split(",")]
    return any(option.startswith("hidepid=") and option not in ("hidepid=0", "hidepid=off") for option in options)


def _why_not_alone(run_dir: str, owners: set[int]) -> str:
    """Why JOBLENS_RUN_DIR can't be given to a user: it may be a folder that others have their files in, as /run."""
    status = os.stat(run_dir)
    if status.st_uid not in owners or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{run_dir} may be written by others"
    for entry in os.scandir(run_dir):
        found = entry.stat(follow_symlinks=False)
        if found.st_uid not in owners or (entry.is_dir(follow_symlinks=False) and entry.name not in OWN_FOLDERS):
            return f"{run_dir} has in it what is not joblensd's: {entry.name}"
    return ""


def _take_over(run_dir: str, uid: int, gid: int) -> None:
    give(run_dir, {0, uid}, uid)
    if _pins(uid):
        bpffs.let_through(gid)
        with contextlib.suppress(FileExistsError):
            os.mkdir(bpffs.PINS, 0o700)
        give(bpffs.PINS, {0, uid}, uid)


def _give_back(folders: Iterable[str], uid: int, gid: int) -> None:
    """joblensd stays root, and has few capabilities soon: what another one has left has to be root's.

    `gid` is 0 if it is not known.
    """
    for path in (*folders, bpffs.PINS):
        with contextlib.suppress(OSError):
            give(path, {uid}, 0)
    with contextlib.suppress(OSError):
        bpffs.let_no_longer_through(gid)


def _pins(uid: int) -> list[str]:
    """The folder of the pins, if there can be any: loader.py makes none where others than root and we can write."""
    return [bpffs.PINS] if bpffs.is_mounted() and bpffs.has_room_for({0, uid}) else []


def _why_not_reached(folders: Iterable[str], uid: int, gid: int) -> str:
    """Which of these folders this user can't list, though they are there."""
    for folder in [*folders, *_pins(uid)]:
        try:
            with privilege.file_ids(uid, gid):
                os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except PermissionError:
            return f"{folder} can't be read by the user {privilege.AGENT_USER}"
        except OSError:
            continue
    return ""


def _become(uid: int, gid: int) -> None:
    until_confined = (*privilege.NEEDED, *privilege.AT_START, privilege.FOR_KPROBES)
    groups = []
    with contextlib.suppress(KeyError):  # it gives its files to that group
        groups.append(grp.getgrnam(privilege.USER).gr_gid)
    try:
        privilege.become_with(uid, gid, until_confined, groups=groups, bound=())
    except OSError as error:
        raise JobLensError(f"joblensd can't become the user {privilege.AGENT_USER}: {error.strerror}") from None
