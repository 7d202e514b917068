"""joblensd's start: the tracer is loaded, the files are opened, and runs that were there before are taken over."""

from __future__ import annotations

import os

from condor_joblens.agent import configuration, own_user, run_folder
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.helpers import Helpers
from condor_joblens.agent.levels import policy_input
from condor_joblens.agent.levels.entries import open_entries
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.lifecycle import recovery, startd_truth
from condor_joblens.agent.lifecycle.startd_state import StartdState
from condor_joblens.agent.node import OWN_CGROUP, Node
from condor_joblens.agent.open_backend import open_source
from condor_joblens.agent.output.job_words import JobWords
from condor_joblens.agent.output.output_state import Output
from condor_joblens.common import knob_digests
from condor_joblens.common.config import Config
from condor_joblens.common.daemon import Daemon, owner_of
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log import Log
from condor_joblens.common.log_settings import DEFAULT_FOLDER
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.jobs.saved_ads import FOLDER, SavedAds
from condor_joblens.jobs.starter_folders import StarterFolders
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.policy.policy_client import PolicyClient
from condor_joblens.startd.startd_child import StartdChild
from condor_joblens.startd.startd_client import StartdClient

RETRY_EVERY = 60.0


def wait_for_kernel(daemon: Daemon, config: Config, helpers: Helpers) -> Agent:
    """The agent, as soon as the kernel plays along. Until then nothing listens, and jobs start without waiting.

    What takes root comes first; then this process has a user of its own, if it can.
    """
    said, artifacts = "", run_folder.ArtifactFolder()
    while True:
        try:
            tree = Tree.find()
            bases = _bases(daemon.macros, config, tree)
            artifacts.take(config)
            _become_own_user(daemon, config, helpers, tree, artifacts.path)
            return _assemble(daemon, config, helpers, tree, bases, artifacts)
        except JobLensError as error:
            if str(error) != said:
                said = str(error)
                daemon.log.error(f"{said}; jobs run unwatched; tried again every {RETRY_EVERY:.0f} s")
        if daemon.signals.wait(RETRY_EVERY):
            config = configuration.read(daemon)


def _become_own_user(daemon: Daemon, config: Config, helpers: Helpers, tree: Tree, artifacts: str) -> None:
    log_folder, executes = os.path.dirname(daemon.log_path), configuration.executes(daemon.macros)
    reason = own_user.become(helpers, tree, config.run_dir, log_folder, executes, artifacts)
    if reason:
        daemon.log(f"joblensd stays root: {reason}")


def _assemble(
    daemon: Daemon,
    config: Config,
    helpers: Helpers,
    tree: Tree,
    bases: list[str],
    artifacts: run_folder.ArtifactFolder,
) -> Agent:
    macros, log = daemon.macros, daemon.log
    watched = [cgroup for cgroup in [*bases, OWN_CGROUP] if tree.identity(cgroup) is not None]
    tracer = open_source(config, tree, watched, helpers.owner_files, log)
    files = run_folder.open_files(config, artifacts, macros, log)
    policies, problems = helpers.read_policies(config.policy_dir)
    for problem in problems:
        log(problem)
    start = None if helpers.policy_children is None else helpers.policy_children.start
    policy = PolicyClient(policies, configuration.limits(config), log, policy_input.PATHS, start)
    executes = configuration.executes(macros)
    node = Node(config, log, tree, bases, executes, tracer, files.runs, files.ended, helpers.owner_files)
    node.knobs = knob_digests.digests(macros)
    configuration.know_programs(node, macros)
    output = Output(node, files.rows, files.events, files.artifacts, Watches(helpers.owner_files), files.history)
    output.job_ads.before = JobWords(node).hear
    saved_ads = SavedAds(os.path.join(config.run_dir, FOLDER))
    levels = Levels(node, output, policy, saved_ads, configuration.slot_attributes(macros))
    levels.entries = open_entries(node.config, node.log)
    agent = Agent(node, output, levels)
    policy.start()
    agent.startd = _startd(macros, log, helpers.began_as_root)
    startd_truth.watch_starters(agent)
    startd_truth.ask(agent)
    recovery.take_over(agent)
    taken_over = ", counters taken over" if tracer.adopted else ""
    log(f"watches jobs below {', '.join('/' + base for base in bases)}{taken_over}")
    return agent


def _startd(macros: dict[str, str], log: Log, began_as_root: bool) -> StartdState:
    """Startds are asked by a process that runs as HTCondor's own user, the owner of its log folder."""
    owner = owner_of(macros.get("LOG", DEFAULT_FOLDER)) if began_as_root else None
    if owner is not None and owner[0] == 0:
        owner = None
    files, attributes = configuration.startd_questions(macros)
    client = StartdClient(lambda: StartdChild(owner), files, attributes, only_once=began_as_root)
    client.begin()
    try:
        return StartdState(client, StarterFolders())
    except OSError as error:
        log(f"no inotify ({error.strerror}): startds are asked about a job when it begins, not when its starter does")
        return StartdState(client)


def _bases(macros: dict[str, str], config: Config, tree: Tree) -> list[str]:
    """Where slots appear. A missing folder is made: its id must be known before the first job."""
    if config.base_cgroup != "auto":
        bases = [config.base_cgroup.strip("/")]
    else:
        name = macros.get("BASE_CGROUP") or "htcondor"
        bases = list(dict.fromkeys([tree.base(name), name]))
        bases = [base for base in bases if base == bases[0] or os.path.isdir(tree.path(base))]
    wanted = [bases[0], OWN_CGROUP] if tree.hybrid else [bases[0]]
    for base in wanted:
        try:
            os.makedirs(tree.path(base), 0o755, exist_ok=True)
        except OSError as error:
            raise JobLensError(f"cgroup {tree.path(base)}: {error.strerror}; correct JOBLENS_BASE_CGROUP") from None
    return bases
