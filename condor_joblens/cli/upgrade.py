"""`joblens upgrade FOLDER`: installs what was built in a folder, and restarts the daemons of this node."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from condor_joblens.cli import restart
from condor_joblens.common.condor_commands import ask
from condor_joblens.common.errors import JobLensError, printable


def run(options: argparse.Namespace) -> int:
    """Runs `make install` there, condor_reconfig, then the new version's `joblens restart`; its exit code."""
    if os.geteuid() != 0:
        raise JobLensError("only root can install: run it as root")
    if not os.path.isfile(os.path.join(options.folder, "Makefile")):
        raise JobLensError(f"{printable(options.folder)} has no Makefile: name the folder in which make bundle ran")
    make = shutil.which("make")
    if make is None:
        raise JobLensError("make is not in the PATH: install it")
    # the tree that is running now goes away below us: whatever comes afterwards is a new process
    settings = [f"PREFIX={sys.prefix}", *options.settings]
    done = subprocess.run([make, "-C", options.folder, "install", *settings], check=False)
    if done.returncode != 0:
        raise JobLensError("make install failed: what runs goes on as it was")
    ask("condor_reconfig")
    if not _runs_ours():
        print("condor_reconfig is all that an access point needs")
        return 0
    program = os.path.join(sys.prefix, "bin", "joblens")
    return subprocess.run([program, "restart", *(["--json"] if options.json else [])], check=False).returncode


def _runs_ours() -> bool:
    """Whether there is a daemon that `joblens restart` restarts."""
    wanted = ask("condor_config_val", "DAEMON_LIST").upper().replace(",", " ").split()
    return bool({"JOBLENSD", *restart.OTHERS}.intersection(wanted))
