"""A producer that runs in a process of its own (kafka_child.py), for the sink: bounded whatever a broker answers."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Optional

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.own_process import start_alike
from condor_joblens.common.signals import signal_name
from condor_joblens.sinks import child_frames
from condor_joblens.sinks.kafka_producer import Message, RefusedByBroker

_LONGEST = 1000  # characters of a reason
PATIENCE_SECONDS = 30.0
"""Beyond twice the time that a record may take."""


class ConfinedProducer:
    """As Producer. The process is started when it is needed, and anew after it had to be ended. For one thread."""

    def __init__(self, settings: Mapping[str, Any], topics: Collection[str], log: Callable[[str], None]) -> None:
        """`settings`: of the sink's knobs."""
        self._settings, self._topics, self._log = dict(settings), sorted(topics), log
        self._seconds = 2 * settings["timeout"] + PATIENCE_SECONDS
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._to: Optional[socket.socket] = None

    @property
    def pid(self) -> int:
        """Of the process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def send(self, messages: Sequence[Message]) -> list[Optional[Exception]]:
        """See Producer.send. Raises JobLensError too if the process does not answer."""
        heads = [(topic, len(key), len(value)) for topic, key, value in messages]
        content = b"".join(part for _, key, value in messages for part in (key, value))
        end = time.monotonic() + self._seconds
        try:
            to = self._connected()
            child_frames.send(to, {"messages": heads}, content, self._seconds)
            left = max(0.0, end - time.monotonic())
            said, _ = child_frames.receive(to, child_frames.MOST_ANSWER_BYTES, left)
            return self._results(said, len(messages))
        except (OSError, child_frames.BadFrame, LookupError, TypeError, ValueError, AttributeError) as error:
            raise JobLensError(self._given_up(error)) from None

    def close(self, seconds: float = 2.0) -> None:
        """Ends the process, within about that time."""
        process, to, self._process, self._to = self._process, self._to, None, None
        if to is not None:
            with contextlib.suppress(OSError):
                to.shutdown(socket.SHUT_RDWR)  # it ends another thread's wait too
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
            process.wait()
        if to is not None:
            to.close()

    def _connected(self) -> socket.socket:
        if self._to is None:
            self._process, self._to = start_alike("condor_joblens.sinks.kafka_child")
            child_frames.send(self._to, {"settings": self._settings, "topics": self._topics}, b"", self._seconds)
        return self._to

    def _results(self, said: Any, count: int) -> list[Optional[Exception]]:
        """By what the process says, which is believed no further than this."""
        for line in said["log"]:
            self._log(printable(str(line), _LONGEST))
        if "error" in said:
            raise JobLensError(printable(str(said["error"]), _LONGEST))
        results: list[Optional[Exception]] = [None] * count
        for position, is_final, reason in said["failed"]:
            kind = RefusedByBroker if is_final is True else JobLensError
            results[range(count)[position]] = kind(printable(str(reason), _LONGEST))
        return results

    def _given_up(self, error: Exception) -> str:
        """Ends the process, and says why."""
        if self._process is not None and not isinstance(error, (socket.timeout, TimeoutError)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
        code = self._process.poll() if self._process is not None else None
        self.close(0)
        if isinstance(error, (socket.timeout, TimeoutError)):  # the same from Python 3.10 on
            return (
                f"the brokers keep the Kafka client busy for more than {self._seconds:g} s: look at them, or at SERVERS"
            )
        if code is not None:
            how = f"by signal {signal_name(-code)}" if code < 0 else "by itself"
            return f"the Kafka client ended {how}, of what a broker answered or for lack of memory: look at the brokers"
        return f"the Kafka client can't be used ({printable(str(error), 200)}): look at the brokers"
