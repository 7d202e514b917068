"""joblensd's event loop: what has happened is served at once, and once a period all numbers are taken and published."""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import time
from collections.abc import Callable

from condor_joblens.agent import configuration, machine, measure, warm_up
from condor_joblens.agent.levels import io_loading, level_arbiter, policy_decisions, policy_rounds
from condor_joblens.agent.lifecycle import process_events, recovery, slot_events
from condor_joblens.agent.node import OWN_CGROUP, Node
from condor_joblens.agent.output import emit_events, program_stats, publishing
from condor_joblens.agent.requests import activate
from condor_joblens.agent.throttle import Paced
from condor_joblens.common.daemon import Daemon
from condor_joblens.common.privilege import NEEDED, keep_only, no_new_privileges
from condor_joblens.jobs.activation import ActivationSocket

RECONCILE_EVERY = 60.0


def serve(node: Node, daemon: Daemon) -> None:
    """Serves the node until a signal ends it. Raises Stop."""
    selector = selectors.DefaultSelector()
    socket_path = os.path.join(node.config.run_dir, "activate.sock")
    callers, folders = Paced(selector), Paced(selector)
    batches = process_events.Batches(node, selector)
    _warm_up(node)
    sock = ActivationSocket(socket_path, callers.selector, lambda request: activate.answer(node, request))
    machine.raise_priority(node.log)
    keep_only(tuple(NEEDED))
    no_new_privileges()
    selector.register(node.tracer.fileno(), selectors.EVENT_READ, lambda: slot_events.take(node))
    folders.selector.register(node.watches.fileno(), selectors.EVENT_READ, lambda: _slot_ads(node))
    selector.register(node.policy.fileno(), selectors.EVENT_READ, lambda: policy_decisions.decided(node))
    io_loading.Loading(node, selector)
    selector.register(daemon.signals.socket, selectors.EVENT_READ, lambda: _signalled(node, daemon))
    try:
        _loop(node, selector, lambda: callers.run(lambda: sock.expire(time.monotonic())), (callers, folders, batches))
    finally:
        # jobs that start from here on must not wait for an answer
        callers.run(sock.close)
        node.policy.stop()
        node.tracer.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(node.config.run_dir, "rows"))
            os.unlink(os.path.join(node.config.run_dir, program_stats.NAME))
        with contextlib.suppress(OSError):  # with jobs in it, it stays
            os.rmdir(node.tree.path(OWN_CGROUP))


def _warm_up(node: Node) -> None:
    try:
        warm_up.end_of_a_job(node.config)
    except Exception as error:  # it costs the first job at level io its last numbers at most
        node.log(f"the first end of a job may be slow: {type(error).__name__}: {error}")
    # what is there by now stays: Python's collector of garbage need not look through it, for milliseconds, at an end
    gc.collect()
    gc.freeze()


def _signalled(node: Node, daemon: Daemon) -> None:
    if daemon.signals.take():
        configuration.reload(node, daemon)


def _slot_ads(node: Node) -> None:
    node.review.slot_ads.update(publishing.repair_ads(node))


def _loop(
    node: Node,
    selector: selectors.BaseSelector,
    expire: Callable[[], None],
    others: tuple[Paced | process_events.Batches, ...],
) -> None:
    urgent = node.tracer.fileno()  # ends of jobs: their starters are awake, and look for the last numbers once
    next_round = time.monotonic()
    next_reconcile = next_round + RECONCILE_EVERY
    while True:
        now = time.monotonic()
        rests = [other.timeout(now) for other in others]
        wait = min(max(0.0, next_round - now), node.policy.timeout(now) or 3600.0, *rests)
        ready = [key for key, _ in selector.select(wait)]
        for key in sorted(ready, key=lambda key: key.fd != urgent):
            key.data()
        expire()
        now = time.monotonic()
        for other in others:
            other.resume(now)
        node.policy.expire(now)
        policy_decisions.decided(node)
        if now < next_round:
            continue
        next_round += node.config.period
        if next_round < now:  # the machine slept, or was too busy: rounds that were missed stay missed
            next_round = now + node.config.period
        if now >= next_reconcile:
            next_reconcile = now + RECONCILE_EVERY
            recovery.reconcile(node)
            node.artifacts.delete_old()
        _round(node)


def _round(node: Node) -> None:
    node.tracer.settle()
    node.own_cpu.measure(time.process_time(), time.monotonic())
    for step in (
        policy_decisions.give_up_asking,
        policy_decisions.release_held,
        policy_rounds.tick,
        level_arbiter.settle,
        measure.everything,
        emit_events.kernel_losses,
        publishing.rows,
    ):
        step(node)
        slot_events.take(node)  # with a thousand jobs all steps take tens of milliseconds: a starter looks sooner
    publishing.ads(node, lambda: slot_events.take(node))
    publishing.forget_last_ads(node)
    program_stats.publish(node)
