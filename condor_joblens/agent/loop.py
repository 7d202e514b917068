"""joblensd's event loop: what has happened is served at once, and once a period all numbers are taken and published."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import time
from collections.abc import Callable

from condor_joblens.agent import configuration, measure, warm_up
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.confine import confine
from condor_joblens.agent.control_socket import ControlSocket
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.hangs import Hangs
from condor_joblens.agent.helpers import Helpers
from condor_joblens.agent.levels import (
    level_arbiter,
    policy_decisions,
    policy_rounds,
    profile_level,
    recorder_level,
    sensor_loading,
)
from condor_joblens.agent.lifecycle import crashes, first_decision, process_events, recovery, slot_events, startd_truth
from condor_joblens.agent.node import OWN_CGROUP, Node
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.agent.throttle import Throttle
from condor_joblens.agent.traces import Traces
from condor_joblens.common.daemon import Daemon
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.signals import HandOver

RECONCILE_EVERY = 60.0


def serve(agent: Agent, daemon: Daemon, helpers: Helpers) -> None:
    """Serves the node until a signal ends it. Raises Stop."""
    node = agent.node
    selector = selectors.DefaultSelector()
    callers, last_words, folders = Throttle(selector), Throttle(selector), Throttle(selector)
    batches = process_events.Batches(agent, selector)
    _warm_up(node)
    evidence = Evidence(node, helpers.lookers, callers.selector)
    hangs = Hangs(node, evidence, agent.output.events, agent.output.artifacts, agent.recorder.tag_if_recorded)
    traces = Traces(node, helpers.lookers, helpers.tracers, callers.selector)
    agent.function_traces.open(traces, callers.selector)
    agent.shell_traces.open(traces, callers.selector)
    agent.throw_traces.open(traces, callers.selector)
    agent.peeks.open(helpers.lookers, callers.selector)
    owner_commands = OwnerCommands(node, helpers.lookers, callers.selector, traces)
    triggers = agent.triggers.open(None if helpers.policy_children is None else helpers.policy_children.start, evidence)
    control = ControlSocket(agent, (callers, last_words), evidence, owner_commands)
    watches = agent.output.job_ads.watches
    helpers.set_priorities(node, watches.fileno(), control.callers())
    confine(node, helpers, os.path.dirname(daemon.log_path))
    helpers.watch(selector)
    selector.register(node.tracer.fileno(), selectors.EVENT_READ, lambda: slot_events.drain(agent))
    folders.selector.register(watches.fileno(), selectors.EVENT_READ, agent.output.job_ads.restore_overwritten)
    answers = agent.levels.policy.fileno()
    selector.register(answers, selectors.EVENT_READ, lambda: _apply_answers(agent))
    selector.register(triggers, selectors.EVENT_READ, agent.triggers.receive)
    agent.triggers.load(configuration.triggers(node.config, helpers.read_triggers, node.log))
    _register_startd(agent, selector)
    profile_level.open_sampling(
        agent.levels, helpers.lookers, helpers.readers, selector, lambda *told: crashes.told(agent, *told)
    )
    if node.sampling is not None:
        node.sampling.profiles.on_steady = hangs.busy.heard
    agent.recorder.open(helpers.recorder_readers, selector)
    agent.python_calls.open(helpers.recorder_readers, selector)
    sensor_loading.SensorLoading(agent.levels, selector)
    selector.register(daemon.signals.socket, selectors.EVENT_READ, lambda: _signalled(agent, daemon, helpers))
    try:
        _loop(agent, selector, control, hangs, (callers, last_words, folders), batches, daemon, helpers)
    except (HelperLost, HandOver):  # the kernel goes on counting, for the next joblensd
        control.close()
        helpers.name_refused_calls()
        raise
    except BaseException:
        _end(agent, control)
        raise


def _end(agent: Agent, control: ControlSocket) -> None:
    """Leaves nothing in the kernel, and no rows that nobody writes any more."""
    # jobs that start from here on must not wait for an answer
    control.close()
    agent.levels.policy.stop()
    agent.triggers.stop()
    if agent.startd.client is not None:
        agent.startd.client.stop()
    agent.node.tracer.close()
    agent.output.rows.remove()
    agent.output.program_stats.remove()
    agent.output.unattributed_servers.remove()
    with contextlib.suppress(OSError):  # with jobs in it, it stays
        os.rmdir(agent.node.tree.path(OWN_CGROUP))


def _register_startd(agent: Agent, selector: selectors.BaseSelector) -> None:
    client, folders = agent.startd.client, agent.startd.folders
    if client is not None:
        answers = client.fileno()
        selector.register(answers, selectors.EVENT_READ, lambda: first_decision.apply_startds_answer(agent))
    if folders is not None:
        selector.register(folders.fileno(), selectors.EVENT_READ, lambda: startd_truth.starters_changed(agent))


def _warm_up(node: Node) -> None:
    try:
        warm_up.end_of_a_job(node.config)
    except Exception as error:  # it costs the first job at level io its last numbers at most
        node.log(f"the first end of a job may be slow: {type(error).__name__}: {error}")
    # what is there by now stays: Python's collector of garbage need not look through it, for milliseconds, at an end
    gc.collect()
    gc.freeze()


def _signalled(agent: Agent, daemon: Daemon, helpers: Helpers) -> None:
    if daemon.signals.take():
        configuration.reload(agent, daemon, helpers.read_policies, helpers.read_triggers)
        helpers.check(agent.node.executes, os.path.dirname(daemon.log_path))


def _apply_answers(agent: Agent) -> None:
    first_decision.apply_answers(agent, lambda: slot_events.drain(agent))


def _loop(
    agent: Agent,
    selector: selectors.BaseSelector,
    control: ControlSocket,
    hangs: Hangs,
    throttles: tuple[Throttle, ...],
    batches: process_events.Batches,
    daemon: Daemon,
    helpers: Helpers,
) -> None:
    node, policy = agent.node, agent.levels.policy
    urgent = node.tracer.fileno()  # ends of jobs: their starters are awake, and look for the last numbers once
    next_round = time.monotonic()
    next_reconcile = next_round + RECONCILE_EVERY
    while True:
        now = time.monotonic()
        rests = [control.timeout(now), agent.triggers.timeout(now), *(throttle.timeout(now) for throttle in throttles)]
        wait = min(max(0.0, next_round - now), policy.timeout(now) or 3600.0, agent.startd.timeout(now), *rests)
        ready = _select(selector, batches, now + wait)
        for key in sorted(ready, key=lambda key: key.fd != urgent):
            key.data()
            if key.fd != urgent:
                slot_events.drain(agent)
        control.resume()
        now = time.monotonic()
        for throttle in throttles:
            throttle.resume(now)
        batches.resume(now)
        if agent.startd.timeout(now) <= 0:
            first_decision.apply_startds_answer(agent)
        policy.expire(now)
        agent.triggers.expire(now)
        _apply_answers(agent)
        if now < next_round:
            continue
        next_round += node.config.period
        if next_round < now:  # the machine slept, or was too busy: rounds that were missed stay missed
            next_round = now + node.config.period
        if now >= next_reconcile:
            next_reconcile = now + RECONCILE_EVERY
            recovery.reconcile(agent)
            helpers.check(node.executes, os.path.dirname(daemon.log_path))
            agent.output.artifacts.store.delete_old()
        _round(agent, batches, helpers)
        control.send()
        hangs.tick()
        took = time.monotonic() - now
        if took > node.config.period:
            daemon.log.full_debug(f"a round took {took:.3f} s, longer than JOBLENS_PERIOD = {node.config.period:g}")


def _select(
    selector: selectors.BaseSelector, batches: process_events.Batches, until: float
) -> list[selectors.SelectorKey]:
    """What has happened; nothing if it is `until` by time.monotonic(). Meanwhile batches of process events are read.

    There can be twenty-five a second. With all else that a turn of the loop looks after, each would cost twice as much.
    """
    while True:
        now = time.monotonic()
        ready = [key for key, _ in selector.select(max(0.0, min(until - now, batches.timeout(now))))]
        if ready or time.monotonic() >= until:
            return ready
        batches.resume(time.monotonic())


def _round(agent: Agent, batches: process_events.Batches, helpers: Helpers) -> None:
    node, levels, output = agent.node, agent.levels, agent.output
    node.tracer.settle()
    batches.begin_round()
    levels.own_cpu.measure(time.process_time() + helpers.cpu_seconds(), time.monotonic())
    steps: tuple[Callable[[], None], ...] = (
        lambda: first_decision.give_up_waiting(agent),
        lambda: policy_decisions.release_held(levels),
        lambda: policy_rounds.tick(levels),
        lambda: level_arbiter.arbitrate(levels),
        lambda: recorder_level.retry(levels),
        lambda: measure.sample_all(node),
        agent.triggers.tick,
        output.events.kernel_losses,
        output.events.process_losses,
        agent.settling.tick,
        output.rows.publish,
    )
    for step in steps:
        step()
        slot_events.drain(agent)  # with a thousand jobs all steps take tens of milliseconds: a starter looks sooner
    if node.sampling is not None:
        node.sampling.profiles.tick(time.monotonic())
    agent.recorder.tick(time.monotonic())
    agent.function_traces.tick()
    agent.shell_traces.tick()
    agent.throw_traces.tick()
    agent.peeks.tick()
    agent.python_calls.tick(time.monotonic())
    agent.tracebacks.tick(output.artifacts)
    output.job_ads.publish_due(lambda: slot_events.drain(agent))
    output.job_ads.expire_final()
    output.program_stats.publish()
    output.unattributed_servers.publish()
    output.history.take()
