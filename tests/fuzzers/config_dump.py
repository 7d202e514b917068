"""What condor_config_val prints: an input is lines, of which each is a value too."""

from __future__ import annotations

from condor_joblens.common.condor_config import parse_dump, values

SEEDS = [
    b"# Configuration from machine: wn\nA = 1\n # at: /etc/condor/config.d/a.conf, line 3\nB = \nC = x = y\n",
    "JOBLENS_SITE = caf\u00e9\u2028JOBLENS_MAX_LEVEL = io\n".encode(),
]
WORDS = [b" = ", b" # at: ", b"\x0c", b"\xc2\x85", b"\xe2\x80\xa8"]


def check(data: bytes) -> None:
    """A value of one line comes out as it is, and makes no other macro."""
    text = data.decode("utf-8", "surrogateescape")
    for name, macro in parse_dump(text).items():
        assert name == name.strip() and "\n" not in macro.value
    value = text.replace("\n", " ").strip()
    assert values(parse_dump(f"# a comment\nJOBLENS_A = {value}\n # at: <Default>\n")) == {"JOBLENS_A": value}
