"""joblensd's configuration: what it reads of HTCondor's, at its start and again at condor_reconfig."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from condor_joblens.agent import before_job
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import policy_decisions, policy_rounds
from condor_joblens.agent.lifecycle import startd_truth
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import run_artifacts
from condor_joblens.common import knob_digests
from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log_settings import DEFAULT_FOLDER
from condor_joblens.jobs.pid_namespace_init import PidNamespaceInit
from condor_joblens.jobs.wrapper_programs import WrapperPrograms
from condor_joblens.model.levels import Level
from condor_joblens.owner_files import allowed_ids
from condor_joblens.policy.policy_files import Policies
from condor_joblens.policy.requests import ChildLimits
from condor_joblens.policy.slot_attributes import SlotAttributes
from condor_joblens.startd.startd_answers import ATTRIBUTES

WRAPPER_MACROS = r"(STARTER\.)?USER_JOB_WRAPPER|LIBEXEC"

STARTD_MACROS = ".*STARTD_ADDRESS_FILE|LOG|STARTD_ATTRS|STARTD_JOB_ATTRS"

ReadPolicies = Callable[[Sequence[str]], Policies]

MACROS = f".*EXECUTE|BASE_CGROUP|{STARTD_MACROS}|{WRAPPER_MACROS}|{allowed_ids.MACROS}"
"""A regular expression of the macros that joblensd reads besides its own."""


def read(daemon: Daemon) -> Config:
    """The configuration as it is now. What is wrong costs a line in the log, and its default is used.

    If HTCondor's configuration can't be read, the macros are those of the last time: none at the start.
    """
    trouble = []
    try:
        daemon.read_macros()
    except JobLensError as error:
        trouble.append(str(error))
    config, problems = parse(daemon.macros)
    daemon.open_log()
    for line in [*trouble, *problems]:
        daemon.log.error(line)
    return config


def triggers(config: Config, read_triggers: ReadPolicies, log: Callable[[str], None]) -> list[tuple[str, str]]:
    """(file, text) of the site's triggers; what is wrong with their folders costs a line in the log."""
    found, problems = read_triggers(config.triggers)
    for problem in problems:
        log(problem)
    return found


def reload(agent: Agent, daemon: Daemon, read_policies: ReadPolicies, read_triggers: ReadPolicies) -> None:
    """condor_reconfig: the log is opened again, and knobs and policies are read again."""
    node, levels = agent.node, agent.levels
    node.config = read(daemon)
    node.knobs = knob_digests.digests(daemon.macros, node.knobs)
    if node.config.max_level >= Level.PROFILE and node.sampling is None:
        daemon.log.error(
            f"JOBLENS_MAX_LEVEL = {node.config.max_level.word}: this joblensd can't sample jobs. It was started below "
            "level profile, or said why then; joblens restart"
        )
    node.executes = executes(daemon.macros)
    know_programs(node, daemon.macros)
    policies, problems = read_policies(node.config.policy_dir)
    for problem in problems:
        node.log(problem)
    levels.policy.reload(policies, limits(node.config))
    agent.triggers.load(triggers(node.config, read_triggers, node.log))
    levels.slot_attributes = slot_attributes(daemon.macros)
    if agent.startd.client is not None:
        agent.startd.client.files, agent.startd.client.attributes = startd_questions(daemon.macros)
    startd_truth.watch_starters(agent)
    policy_rounds.reload(levels)
    policy_decisions.update_periods(levels)
    node.tracer.classify_filesystems(node.config.filesystem_classes.numbers)
    node.tracer.limit_process_events(node.config.max_events)
    node.collectors.endpoints.lists.rename(node.config.endpoint_names)
    node.collectors.servers.lists.names.rename(node.config.endpoint_names)
    store = agent.output.artifacts.store
    store.limit(run_artifacts.limits(node.config, store.folder))
    node.log("configuration read again")


def executes(macros: dict[str, str]) -> list[str]:
    """The folders below which the node's startds run jobs: EXECUTE, SLOT1_EXECUTE, LOCAL_UNIV_EXECUTE ..."""
    return sorted({value for name, value in macros.items() if name.upper().endswith("EXECUTE") and value[:1] == "/"})


def job_users(macros: dict[str, str]) -> allowed_ids.AllowedIds:
    """As whom joblensd may work in folders: the owners of HTCondor's own, and whoever jobs can run as."""
    return allowed_ids.allowed_ids(macros, [macros.get("LOG", DEFAULT_FOLDER), *executes(macros)])


def know_programs(node: Node, macros: dict[str, str]) -> None:
    """Which programs run in a slot before its job: they are told from the job's own."""
    node.wrapper_programs = wrapper_programs(macros)
    libexec = macros.get("LIBEXEC", "")
    node.pid_namespace_init = PidNamespaceInit(libexec)
    node.python_hook = os.path.join(libexec, "joblens_python") if os.path.isabs(libexec) else ""
    before_job.know_init(node)


def wrapper_programs(macros: dict[str, str]) -> WrapperPrograms:
    """What the job's wrapper runs: the one that was installed, and the one that is configured."""
    named = [macros.get(name, "") for name in ("STARTER.USER_JOB_WRAPPER", "USER_JOB_WRAPPER")]
    installed = os.path.join(macros.get("LIBEXEC", ""), "joblens_wrapper")
    return WrapperPrograms(path for path in [*named, installed] if os.path.isabs(path))


def slot_attributes(macros: dict[str, str]) -> SlotAttributes:
    """What of a slot's ad the policies see: also what the site gives its slots, and what the startd has of the job."""
    site, of_job = (macros.get(name, "").replace(",", " ").split() for name in ("STARTD_ATTRS", "STARTD_JOB_ATTRS"))
    return SlotAttributes(site, of_job)


def startd_questions(macros: dict[str, str]) -> tuple[list[str], list[str]]:
    """The files with the addresses of the node's startds, and the attributes that they are asked about each slot."""
    named = {value for name, value in macros.items() if name.upper().endswith("STARTD_ADDRESS_FILE")}
    files = sorted(path for path in named if path[:1] == "/" and len(path.split()) == 1)
    return files, sorted({*ATTRIBUTES, *slot_attributes(macros).names})


def limits(config: Config) -> ChildLimits:
    """What one decision of the policies may cost."""
    cpu = config.policy_cpu_milliseconds / 1000
    return ChildLimits(cpu_seconds=cpu, wall_seconds=50 * cpu)
