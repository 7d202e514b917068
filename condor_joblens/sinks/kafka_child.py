"""The process in which kafka-python runs, for the Kafka sink: a hostile broker can make that library do anything.

An answer can make it wait for ever, compute for hours (the rounds of SCRAM are the broker's choice), or take all
memory. So it has a process of its own. The kernel bounds its memory, and the sink ends it when it takes too long.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.privilege import end_with_parent
from condor_joblens.sinks import child_frames
from condor_joblens.sinks.kafka_producer import Message, Producer, RefusedByBroker, read_settings

MOST_MEMORY_BYTES = 192 << 20
"""Of data in memory. Without a broker it takes 30 MiB, and with 4 MiB of records on the way twice that."""

_LOG_LINES = 20  # of one answer
_CLOSE_SECONDS = 2.0


def main() -> None:
    """Sends what comes from the sink, until the sink ends the connection."""
    end_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sink = socket.socket(fileno=os.dup(0))
    log: list[str] = []
    try:
        said, _ = child_frames.receive(sink, child_frames.MOST_BYTES)
        producer = Producer(read_settings(said["settings"]), said["topics"], log.append)
        try:
            while True:
                said, content = child_frames.receive(sink, child_frames.MOST_BYTES)
                answer = _answer(producer, _messages(said["messages"], content))
                child_frames.send(sink, {**answer, "log": log[:_LOG_LINES]})
                log.clear()
        finally:
            producer.close(_CLOSE_SECONDS)
    except child_frames.BadFrame:
        pass  # the sink is closed


def _messages(heads: list[tuple[str, int, int]], content: memoryview) -> list[Message]:
    """Of (topic, length of the key, length of the value) each, and all keys and values."""
    messages, at = [], 0
    for topic, key, value in heads:
        messages.append((topic, bytes(content[at : at + key]), bytes(content[at + key : at + key + value])))
        at += key + value
    return messages


def _answer(producer: Producer, messages: list[Message]) -> dict[str, Any]:
    """What became of them: the positions of those that were not confirmed, and why."""
    try:
        results = producer.send(messages)
    except JobLensError as error:
        return {"error": str(error)}
    except Exception as error:  # a broker's answer can make the library raise anything
        return {"error": printable(f"the Kafka client fails: {type(error).__name__}: {error}", 300)}
    return {
        "failed": [
            [position, isinstance(error, RefusedByBroker), str(error)]
            for position, error in enumerate(results)
            if error
        ]
    }


if __name__ == "__main__":
    try:
        main()
    finally:
        os._exit(0)  # threads of the library may hang
