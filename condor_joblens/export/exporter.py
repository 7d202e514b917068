"""The exporter as a whole: the shared memory on one side, a channel for each sink on the other."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from condor_joblens.common import listening, machine
from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.export import artifact_files, records
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import RunIndex
from condor_joblens.export.shared_memory_reader import SharedMemoryReader
from condor_joblens.export.spool import SpoolLimits
from condor_joblens.export.stop_event import StopEvent
from condor_joblens.shm.reader import Reader, is_stale
from condor_joblens.sinks import SinkContext, kernel_programs
from condor_joblens.sinks.registry import SinkConfig, configure

HEALTH_EVERY = 60.0
LOOK_EVERY = 5.0
"""Seconds between two looks at our own memory."""

STOP_SECONDS = 5.0
"""For delivering what waits, at an orderly end; the rest goes to the spool."""

RELOAD_SECONDS = 2.0
"""The same for a sink whose configuration changes."""


class SharedRows:
    """The rows in shared memory, for all sinks; joblensd may come and go."""

    def __init__(self, path: str, period: float) -> None:
        self._path, self._period = path, period
        self._lock = threading.Lock()
        self._reader: Reader | None = None

    def __call__(self) -> tuple[np.ndarray, float]:
        """A copy of all rows, and when they were taken. Raises JobLensError where none are fresh."""
        with self._lock:
            if self._reader is None:
                self._reader = Reader(self._path)
            rows, taken = self._reader.rows()
        if is_stale(taken, time.time(), self._period):
            raise JobLensError(f"{self._path} has no new rows: joblensd is dead or hangs")
        return rows, taken


class Exporter:
    """Runs by the configuration in force. `exhausted` is set where it must be started anew."""

    def __init__(
        self,
        log: Callable[[str], None],
        macros: Mapping[str, str],
        listen: Callable[[str], Optional[socket.socket]] = listening.listen,
    ) -> None:
        """`listen`: see SinkContext."""
        self._log, self._listen = log, listen
        self._lock = threading.Lock()  # of channels and reader; held for a round at a time
        self._channels: dict[str, Channel] = {}
        self._run_index = RunIndex()
        self._node = macros.get("FULL_HOSTNAME") or socket.gethostname()
        self._stopped = StopEvent()
        self.exhausted = False
        self._config, _ = parse(macros)
        self._reader = SharedMemoryReader(self._config.run_dir, self._node, log, self._run_index)
        self._instance = f"{self._node}/{os.urandom(8).hex()}"
        self._healths = 0
        self._execute = macros.get("EXECUTE", "")
        self.reconfigure(macros)
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._watch = threading.Thread(target=self._look_after_itself, name="health", daemon=True)
        self._thread.start()
        self._watch.start()

    def reconfigure(self, macros: Mapping[str, str]) -> None:
        """Takes a configuration: a sink to which it says nothing new goes on undisturbed, and nothing is lost."""
        config, problems = parse(macros)
        configs, wrong = configure(config.sinks, macros)
        for problem in [*problems, *wrong]:
            self._log(problem)
        with self._lock:
            all_changed = _concerns_sinks(config) != _concerns_sinks(self._config)
            self._config = config
            wanted = {found.name: found for found in configs}
            for name, channel in list(self._channels.items()):
                if all_changed or wanted.get(name) != channel.config:
                    channel.stop(RELOAD_SECONDS)
                    del self._channels[name]
            new = [found for found in configs if found.name not in self._channels]
            for found in new:
                self._add(found)
            if new:
                self._reader.offer_again()

    def _add(self, found: SinkConfig) -> None:
        config = self._config
        context = SinkContext(
            self._log,
            SharedRows(f"{config.run_dir}/rows", config.period),
            self.health,
            self._node,
            lambda: kernel_programs.read(f"{config.run_dir}/attached"),
            lambda: kernel_programs.read(f"{config.run_dir}/servers"),
            self._listen,
            artifact_files.reader(config.run_dir),
        )
        limits = SpoolLimits(config.spool_bytes, config.spool_seconds, config.spool_fsync)
        try:
            channel = Channel(found, context, self._run_index, config.spool_dir, limits)
        except Exception as error:  # what a plug-in's class says of itself may be nonsense
            self._log(f"the sink {found.name} can't be used: {printable(f'{type(error).__name__}: {error}', 300)}")
            return
        self._channels[found.name] = channel
        channel.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                seen = self._reader.wake_word()
                with self._lock:
                    more = self._reader.round(self._channels.values())
                if more:
                    continue
                self._reader.wait(seen, 1.0)
                # a record alone costs as much as some dozen together
                self._stopped.wait(self._config.linger)
            except Exception as error:
                self._log(f"joblens-export met what it can't handle, and goes on: {type(error).__name__}: {error}")
                self._stopped.wait(1.0)

    def _look_after_itself(self) -> None:
        next_health = time.monotonic() + HEALTH_EVERY
        while not self._stopped.wait(LOOK_EVERY):
            if _resident_bytes() > self._config.export_max_bytes and not self.exhausted:
                self._log(
                    f"joblens-export has {_resident_bytes()} bytes of memory, more than JOBLENS_EXPORT_MAX_BYTES = "
                    f"{self._config.export_max_bytes}: a sink leaks; it starts anew"
                )
                self.exhausted = True
                os.kill(os.getpid(), signal.SIGTERM)
            with self._lock:
                for channel in self._channels.values():
                    if channel.lacks_disk:
                        channel.seek_disk()
            if time.monotonic() >= next_health:
                next_health += HEALTH_EVERY
                self._tell_health()

    def _tell_health(self) -> None:
        self._healths += 1
        identity = f"{self._instance}/health/{self._healths}"
        process = {**process_health(), "Machine": self._machine()}
        record = records.health(self._node, self.health(), process, identity, time.time())
        with self._lock:
            for channel in self._channels.values():
                channel.other([record])

    def _machine(self) -> dict[str, Any]:
        """How the node does, and how much room its jobs have."""
        with contextlib.suppress(OSError):
            return {**machine.machine(), **machine.disk("Execute", self._execute)}
        return machine.machine()

    def health(self) -> Sequence[Mapping[str, Any]]:
        """How each sink does: see Channel.health."""
        return [channel.health() for channel in list(self._channels.values()) if channel.takes]

    def stop(self) -> None:
        """Ends all sinks within some seconds; what they have not confirmed is in their spools."""
        self._stopped.set()
        self._thread.join(STOP_SECONDS)
        self._reader.stop()
        # the last that joblensd has told
        with self._lock:
            while self._reader.round(self._channels.values()):
                pass
            ends = [
                threading.Thread(target=channel.stop, args=(STOP_SECONDS,), daemon=True)
                for channel in self._channels.values()
            ]
            for end in ends:
                end.start()
            for end in ends:
                end.join(2 * STOP_SECONDS)


def _concerns_sinks(config: Config) -> tuple[object, ...]:
    """What every sink depends on."""
    return (
        config.run_dir,
        config.period,
        config.spool_dir,
        config.spool_bytes,
        config.spool_seconds,
        config.spool_fsync,
    )


def process_health() -> dict[str, Any]:
    """What joblens-export itself costs."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"CpuSeconds": round(usage.ru_utime + usage.ru_stime, 3), "ResidentBytes": _resident_bytes()}


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
