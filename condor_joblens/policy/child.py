"""The policy child: parses job ads and runs policies, or asks triggers about events. It has nothing to lose.

Started by joblensd with a stream socket as descriptor 0 and /dev/null as 1 and 2. It becomes user joblens, opens
nothing more, and dies of whatever an ad or a policy does to it; joblensd starts another.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from condor_joblens.common.errors import JobLensError
from condor_joblens.policy.child_frames import LENGTHS, MAX_BODY, MAX_POLICIES, FrameReader, Message, pack
from condor_joblens.policy.confine import LIFETIME_CPU, confine, keep_small

if TYPE_CHECKING:
    from condor_joblens.policy.child_service import Service

CHANNEL = 0
READ = 64 << 10  # bytes at a time; a larger buffer would be mapped and unmapped for each message
RETIRE_CPU = LIFETIME_CPU / 2  # seconds of CPU, after which a fresh child takes over


def main() -> int:
    """Serve until the socket is closed; exit code 0 then and at retirement."""
    try:
        from condor_joblens.policy.child_service import Service
        from condor_joblens.policy.trigger_service import TriggerService

        _warm_up(Service(_ignore))
        keep_small()
        confine()
        service, triggers = Service(_send, _send_doing), TriggerService(_send)
        gc.freeze()  # what is there now stays: no collection need look at it
    except Exception as error:  # whatever it is, joblensd's log is the only place where it can be read
        reason = str(error) if isinstance(error, JobLensError) else f"{type(error).__name__}: {error}"
        _send({"verb": "unfit", "reason": reason[:300]})
        return 1
    reader = FrameReader(MAX_POLICIES, MAX_BODY)
    while time.process_time() < RETIRE_CPU:
        data = os.read(CHANNEL, READ)
        if not data:
            break
        for message, body in reader.feed(data):
            signal.setitimer(signal.ITIMER_PROF, message.get("cpu", 0))
            _serve(service, message, body)
            triggers.serve(message, body)
            signal.setitimer(signal.ITIMER_PROF, 0)
    return 0


def _serve(service: Service, message: Message, body: bytes) -> None:
    """Answer one message. Beyond its budget of CPU comes SIGPROF, which nobody catches: the end."""
    verb = message["verb"]
    if verb == "policies":
        service.policies(message)
    elif verb == "decide":
        service.decide(message, body)
    elif verb == "decide_many":
        service.decide_many(message, body)
    elif verb == "forget":
        service.forget(message)
    elif verb == "read":
        service.read(message)
    elif verb == "replay":
        service.replay(message, body)


def _send(message: Message) -> None:
    _write(pack(message))


def _write(frame: bytes) -> None:
    while frame:
        frame = frame[os.write(CHANNEL, frame) :]


@functools.lru_cache(maxsize=500)
def _text(what: str) -> str:
    return json.dumps(what)


def _send_doing(number: int, what: str) -> None:
    """As `_send`, for the one message of which there are many."""
    text = b'{"verb": "doing", "id": %d, "what": %s}' % (number, _text(what).encode())
    _write(LENGTHS.pack(len(text), 0) + text)


def _warm_up(service: Service) -> None:
    """Decide once, rightly and wrongly: what Python and classad2 load at first use can't be opened later."""
    good = 'rule "é" { level = "io" } '
    rules = 'rule "warm" { when = "strcat(A, 1) is error", level = "io", for_seconds = 5, cap = "off" } '
    wrong = 'rule "up" { when = function(job) return job.JobLensLevel < job.L.x + job.T.x.y end, sinks = {1} }'
    service.policies({"policies": [("good.lua", rules), ("wrong.lua", good), ("wronger.lua", wrong), ("no.lua", "=")]})
    ad = b'JobLensLevel = strcat("\xc3", 1)\nT = absTime("2020-01-01T00:00:00Z")\nL = {1, error, [a = 2]}\n'
    message = {"slot": {"Name": "slot1"}, "default": "basic", "max": "io", "id": 0}
    service.decide({**message, "key": "warm", "trace": True}, ad)
    service.decide({**message, "key": "wrong"}, b"")
    service.decide_many({"id": 0, "now": 0.0, "keys": ["warm"], "usage": []}, b"")
    service.replay({"id": 0, "default": "basic", "max": "io", "lengths": [len(ad)]}, ad)


def _ignore(message: Message) -> None:
    """Nobody waits for the answers of a warm-up."""


if __name__ == "__main__":
    sys.exit(main())
