"""The policy child: parses job ads and runs policies, and has nothing to lose.

Started by joblensd with a stream socket as descriptor 0 and /dev/null as 1 and 2. It becomes user joblens, opens
nothing more, and dies of whatever an ad or a policy does to it; joblensd starts another.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from condor_joblens.errors import JobLensError
from condor_joblens.policy.confine import LIFETIME_CPU, confine
from condor_joblens.policy.frames import MAX_AD, MAX_POLICIES, FrameReader, Message, pack
from condor_joblens.policy.identity import literals

if TYPE_CHECKING:
    from condor_joblens.policy.engine import Engine

CHANNEL = 0
RETIRE_CPU = LIFETIME_CPU / 2  # seconds of CPU, after which a fresh child takes over
MAX_ERRORS = 20  # lines of a reply


def main() -> int:
    """Serve until the socket is closed; exit code 0 then and at retirement."""
    try:
        from condor_joblens.policy.engine import Engine

        _warm_up(Engine())
        confine()
        engine = Engine()
    except Exception as error:  # whatever it is, joblensd's log is the only place where it can be read
        reason = str(error) if isinstance(error, JobLensError) else f"{type(error).__name__}: {error}"
        _send({"verb": "unfit", "reason": reason[:300]})
        return 1
    reader = FrameReader(MAX_POLICIES, MAX_AD)
    while time.process_time() < RETIRE_CPU:
        data = os.read(CHANNEL, 1 << 18)
        if not data:
            break
        for message, body in reader.feed(data):
            if message["verb"] == "policies":
                errors = engine.load(message["policies"], _doing(0))
                _send({"verb": "ready", "errors": errors[:MAX_ERRORS]})
            elif message["verb"] == "decide":
                _send(_decide(engine, message, body))
    return 0


def _decide(engine: Engine, message: Message, ad: bytes) -> Message:
    """The reply to one request. Beyond its budget of CPU comes SIGPROF, which nobody catches: the end."""
    number = message["id"]
    signal.setitimer(signal.ITIMER_PROF, message["cpu"])
    names = literals(ad)
    _send({"verb": "doing", "id": number, "what": "the job's ad", "identity": names})
    try:
        reply = engine.decide(ad, message, _doing(number))
        reply["identity"] = {**names, **reply["identity"]}
        reply["errors"] = reply["errors"][:MAX_ERRORS]
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        reply = {"verb": "failed", "reason": f"the job's ad {reason}"[:120], "identity": names}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {**reply, "id": number}


def _doing(number: int) -> Callable[[str], None]:
    return lambda what: _send({"verb": "doing", "id": number, "what": what})


def _send(message: Message) -> None:
    frame = pack(message)
    while frame:
        frame = frame[os.write(CHANNEL, frame) :]


def _warm_up(engine: Engine) -> None:
    """Decide once, rightly and wrongly: what Python and classad2 load at first use can't be opened later."""
    engine.load([("warm-up.lua", "return function() return 'é' end"), ("wrong.lua", "=")], _ignore)
    ad = b'JobLensLevel = strcat("\xc3", 1)\nT = absTime("2020-01-01T00:00:00Z")\nL = {1, error, [a = 2]}\n'
    engine.decide(ad, {"slot": {"Name": "slot1"}, "default": "basic", "max": "io"}, _ignore)
    literals(ad)


def _ignore(what: str) -> None:
    """Nobody asks what a warm-up is doing."""


if __name__ == "__main__":
    sys.exit(main())
