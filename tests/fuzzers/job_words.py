"""What a job's ad asks for, and what its programs are called: joblensd reads both itself."""

from __future__ import annotations

from condor_joblens.jobs.death_sentence import PROGRAM_BYTES, program_of
from condor_joblens.model.levels import Level
from condor_joblens.policy import level_request
from condor_joblens.tracer.map_layout import COMMAND_BYTES

_LEVELS = list(Level)
_NAME_BYTES = 15
SEEDS = [
    b'JobLensLevel = "io"\nCmd = "/bin/true"\n',
    b"joblenslevel=2\r\nJobLensLevel = undefined\n",
    b'JobLensLevel = ifThenElse(x, "io", "off")\n',
    b"python3\0\0\0\0\0\0\0\0" + b"/usr/bin/python3\0-m\0package.module\0",
    b"a_long_name_tha" + b"/opt/a_long_name_that_is_cut\0--token\0x",
    b"bash\0\0\0\0\0\0\0\0\0\0\0" + b"-bash\0-e\0script.sh\0" + b"x" * COMMAND_BYTES,
]
WORDS = [b"JobLensLevel", b"undefined", b'"profile"', b"=", b"python3", b"perl", b"-jar", b"-c", b"\0", b"\xff"]


def check(data: bytes) -> None:
    """Who may ask for a level may ask for a lower one; a request is short ASCII; a program's name is one short line."""
    may = [level_request.may_ask_for(data, level) for level in _LEVELS]
    assert may == sorted(may, reverse=True)
    text = data.decode("utf-8", "replace")
    for value in (text, len(data), None):
        asked = level_request.understand(value, text, text[::2])
        assert asked.written.isascii() and asked.written.isprintable()
        assert len(asked.written) <= level_request.SHOWN
        for final in _LEVELS:
            assert level_request.note(asked, final, Level.IO, "").isprintable()
    name = program_of(data[:_NAME_BYTES].rstrip(b"\0"), data[_NAME_BYTES:][:COMMAND_BYTES])
    assert len(name.encode()) <= PROGRAM_BYTES and "\n" not in name and "\x1b" not in name
