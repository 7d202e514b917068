"""What joblensd, and its helper in jobs' folders, can still do once the node is served: files and system calls."""

from __future__ import annotations

import os

from condor_joblens.agent.helpers import Helpers
from condor_joblens.agent.node import OWN_CGROUP, Node
from condor_joblens.common import landlock
from condor_joblens.common.bpffs import BPFFS, PINS
from condor_joblens.common.privilege import keep_only, no_new_privileges, not_dumpable


def confine(node: Node, helpers: Helpers, log_folder: str) -> None:
    """Gives up all capabilities, and changes nothing any more but joblensd's own files. For good.

    It keeps those to load programs if nobody else can do that for it.

    What can't be had of it costs a line in the log.
    """
    keep_only(helpers.load_for(node))
    no_new_privileges()
    not_dumpable()
    helpers.confine(node, log_folder)
    try:
        confined = landlock.allow_only(landlock.CHANGE, _changed_below(node, log_folder))
        reason = "this kernel has no Landlock"
    except OSError as error:
        confined, reason = False, error.strerror or str(error)
    if not confined:
        node.log(f"{reason}: joblensd could write all files of its user")
    helpers.refuse_other_calls(node.log)


def _changed_below(node: Node, log_folder: str) -> dict[str, int]:
    """Where joblensd makes and changes files, with which rights. The folders of jobs are its helper's."""
    return {
        node.config.run_dir: landlock.CHANGE,
        node.config.artifact_dir: landlock.CHANGE,
        log_folder: landlock.CHANGE,
        PINS: landlock.CHANGE,
        BPFFS: landlock.MAKE_FOLDER | landlock.REMOVE_FOLDER,
        node.tree.mount: landlock.REMOVE_FOLDER,
        node.tree.path(OWN_CGROUP): landlock.CHANGE,
        os.devnull: landlock.CHANGE,
    }
