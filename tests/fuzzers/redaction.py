"""Command lines. What C leaves to nobody's closer look is what Python, which looks at everything, would show."""

from __future__ import annotations

import numpy as np

from condor_joblens.common.redact import HIDDEN, clipped, command_line
from condor_joblens.common.secret_names import SIGNS
from condor_joblens.model.events import EVENT
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.event_records import MARK_TEXT, RecordMaker

SEEDS = [
    b"python3\0train.py\0--epochs=3\0/data/run_1",
    b"curl\0-u\0alice:tulip\0https://host/path",
    b"sh\0-c\0export API_KEY='a b c'; mysql -ptulip --host db",
    b'curl\0-H\0Authorization: Bearer eyJhbGciOiJIUzI1.x.y\0{"password": "p", "a": 1}',
    b"openssl\0enc\0-k\0tulip\0https://u:p@host",
]
WORDS = [sign if isinstance(sign, bytes) else sign.encode() for sign in SIGNS][:200]
_MAKER = RecordMaker(1)
_TEXT_BYTES = EVENT["text"].itemsize
_SECRET = "Zq7tulipSecret"


def check(data: bytes) -> None:
    """It is one printable line; a value behind --token is hidden; the fast way shows no more than the thorough one."""
    for cut in (False, True):
        line = command_line(data, cut)
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in line)
    command = data[: map_layout.COMMAND_BYTES]
    found: np.ndarray = np.zeros(1, map_layout.PROCESS_EVENT)
    found["kind"], found["program"], found["command"] = map_layout.PROCESS_EXEC, b"job", command
    found["command_bytes"] = len(command)
    events, marks, _ = _MAKER.make(found, [1], 0.0)
    if not marks["mark"][0] & MARK_TEXT:
        assert events["text"][0] == clipped(command_line(command.rstrip(b"\0")), _TEXT_BYTES)
    ahead = b"" if b"--" in data.split(b"\0") else data.rstrip(b"\0") + b"\0"
    if HIDDEN not in command_line(data):
        assert _SECRET not in command_line(b"job\0" + ahead + b"--token=" + _SECRET.encode())
