"""The control socket and that for last words: requests reach commands/, and commands reach the node's runs."""

from __future__ import annotations

import functools
import os
import select
import time
from collections.abc import Mapping
from typing import Any

from condor_joblens.agent import before_job
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.flight_recorder import NotTagged
from condor_joblens.agent.last_words import LastWords
from condor_joblens.agent.levels import level_arbiter, python_tracing
from condor_joblens.agent.lifecycle import activation, raised
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.agent.remote_commands import RemoteCommands, open_remote_commands
from condor_joblens.agent.throttle import Throttle, TimeShare, working_time
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.config import Config
from condor_joblens.control import SOCKET
from condor_joblens.control.server import ControlServer
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.sandbox import OF_ANOTHER, JobSandbox
from condor_joblens.model.levels import Level
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.shm.artifacts import ArtifactWriter

SHARE_OF_A_USER, SAVED_OF_A_USER = 0.04, 0.25
"""Share of the time for the requests of one user, and seconds of it that are saved up. It is less than half of what all
have together, so nobody's flood keeps a job of another user waiting for its answer."""


class ControlSocket:
    """Serves requests for a share of joblensd's time, whatever comes."""

    def __init__(
        self, agent: Agent, throttles: tuple[Throttle, Throttle], evidence: Evidence, owner_commands: OwnerCommands
    ) -> None:
        """Listens; `evidence` looks at jobs, and `owner_commands` has things done in them.

        One throttle is for requests, the other for last words. Raises JobLensError if another joblensd listens.
        """
        callers, at_ends = throttles
        self._callers, self._evidence, self._owner_commands = callers, evidence, owner_commands
        self._commands = Dispatcher(CommandNode(agent, evidence, owner_commands, open_remote_commands(agent)))
        path = os.path.join(agent.node.config.run_dir, SOCKET)
        self._server = ControlServer(
            path, callers.selector, self._commands, agent.node.log, _share_of_a_user, working_time
        )
        self._last_words = LastWords(agent.node, at_ends, self._commands)
        self._server.callers.register(self._last_words.fileno(), select.EPOLLIN)

    def callers(self) -> int:
        """A descriptor (epoll) that is readable while somebody waits to be accepted, and with which nobody can."""
        return self._server.callers.fileno()

    def timeout(self, now: float) -> float:
        """Seconds until a user has had to wait long enough; `now` is time.monotonic()."""
        waits = [self._last_words.timeout(now), self._commands.timeout()]
        if not self._callers.is_paused:
            waits += [each.timeout(now) for each in (self._server, self._evidence, self._owner_commands)]
        return min(waits)

    def resume(self) -> None:
        """Serves those users, and closes the connections that have waited too long."""
        self._last_words.resume()
        self._callers.run(self._resume)
        self._commands.tell_sums()

    def _resume(self) -> None:
        now = time.monotonic()
        if not self._callers.is_paused:
            self._server.resume(now)
        self._server.expire(now)
        self._evidence.expire(now)
        self._owner_commands.expire(now)

    def send(self) -> None:
        """Sends new rows to those who watch."""
        if self._commands.watch.is_watched:
            self._callers.run(self._commands.watch.send)

    def close(self) -> None:
        """Stops listening, and ends all streams."""
        self._last_words.close()
        self._callers.run(self._server.close)
        self._commands.tell_sums(at_once=True)


def _share_of_a_user() -> TimeShare:
    return TimeShare(SAVED_OF_A_USER, SHARE_OF_A_USER)


class CommandNode:
    """What commands may do with the node (commands/node_protocol.py)."""

    def __init__(
        self,
        agent: Agent,
        evidence: Evidence,
        owner_commands: OwnerCommands,
        remote: RemoteCommands | None = None,
    ) -> None:
        self._agent, self._evidence, self._owner_commands = agent, evidence, owner_commands
        self.remote = remote

    @property
    def runs(self) -> Runs:
        return self._agent.node.runs

    @property
    def ended(self) -> Ended:
        return self._agent.node.ended

    @property
    def artifacts(self) -> ArtifactWriter:
        return self._agent.output.artifacts.store

    @property
    def config(self) -> Config:
        return self._agent.node.config

    def log(self, message: str) -> None:
        self._agent.node.log(message)

    def sandbox(self, run: int) -> JobSandbox | None:
        return self._agent.node.handles[run].sandbox

    def cgroup(self, run: int) -> str:
        return str(self._agent.node.handles[run].path)

    def describe(self, run: int) -> str:
        return self._agent.node.describe(run)

    def note(self, run: int, without: str = "") -> str:
        return self._agent.node.note(run, without)

    def run_of_process(self, pid: int, slot: str, scratch: str) -> int:
        return activation.run_of_process(self._agent, pid, slot, scratch)

    def next_job(self, run: int, pid: int) -> bool:
        return activation.next_job(self._agent, run, pid)

    def only_wrapper_ran(self, run: int) -> bool:
        return before_job.only_wrapper_ran(self._agent.node, run)

    def begin_counting(self, run: int, pid: int) -> None:
        activation.begin_counting(self._agent, run, pid)

    def traces_python(self, run: int) -> str:
        return python_tracing.what(self._agent.levels, run)

    def python_ring(self, run: int, pid: int, version: str) -> tuple[dict[str, str], int]:
        return self._agent.python_calls.give(run, pid, version)

    def has_raised(self, run: int, pid: int, line: str, place: str, traceback: str) -> bool:
        return raised.hear(self._agent, run, pid, line, place, traceback)

    def has_variables(self, run: int, pid: int, lines: str) -> None:
        raised.hear_variables(self._agent, run, pid, lines)

    def level_refusal(self, run: int, level: Level | None, by_root: bool) -> str:
        return level_arbiter.refusal(self._agent.levels, run, level, by_root)

    def kept_low(self, run: int) -> str:
        return level_arbiter.kept_low(self._agent.levels, run)

    def take_entries(self, packet: bytes) -> None:
        levels, config = self._agent.levels, self._agent.node.config
        before = levels.entries.expressions(config)
        levels.entries.take(packet, config)
        if levels.entries.expressions(config) != before:
            levels.round.next_at = 0.0  # the policy child alone evaluates them
        level_arbiter.arbitrate(self._agent.levels)

    def count_entry(self, packet: bytes) -> dict[str, Any]:
        entry = self._agent.levels.entries.asked(packet, self._agent.node.config)
        return level_arbiter.preview(self._agent.levels, entry)

    def apply_levels(self, run: int) -> None:
        level_arbiter.arbitrate(self._agent.levels)
        level_arbiter.explain(self._agent.levels, run)
        self._agent.output.job_ads.publish_soon(run)

    def take_evidence(self, run: int, whose: Payer, stream: Stream) -> None:
        self._evidence.take(run, whose, stream)

    def keep_last_events(self, run: int, whose: Payer) -> float:
        self._owner_commands.check_share(whose)
        charge = functools.partial(self._owner_commands.charge, whose)
        try:
            return self._agent.recorder.tag(run, "owner", not_so_often=whose != 0, charge=charge)
        except NotTagged as error:
            raise Refused(str(error)) from None

    def notify(self, run: int, line: bytes) -> str:
        sandbox = self._agent.node.handles[run].sandbox
        if sandbox is None:
            return "the job's folder is unknown"
        if not sandbox.is_of_its_user():
            return OF_ANOTHER
        try:
            result = sandbox.add_notice(line)
        except OSError:
            result = NoticeResult.FAILED
        return "" if result is NoticeResult.DONE else result.value

    def do_as_owner(self, run: int, whose: Payer, request: Mapping[str, object], stream: Stream) -> None:
        self._owner_commands.begin(run, whose, request, stream)
