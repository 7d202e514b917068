"""Both ends of a socket, by the tables of its process's network namespace."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from condor_joblens.profiling.process import Process

_STATES = {
    1: "established", 2: "connecting", 3: "connecting", 4: "closing", 5: "closing", 6: "closing", 7: "closed",
    8: "closed by the other end", 9: "closing", 10: "listening", 11: "closing",
}  # fmt: skip
_LISTENING = 10
INTERNET = ("tcp", "tcp6", "udp", "udp6")


@dataclass(frozen=True)
class Socket:
    """A socket: `words` are for a person. The other end is an address and a port, and empty if there is none yet."""

    words: str
    protocol: str  # tcp, udp or unix
    peer: str = ""  # 10.0.0.2:1094
    here: str = ""  # 10.0.0.1:4242
    is_listening: bool = False


UNKNOWN = Socket("a socket", "")
NAMELESS = Socket("unix socket without a name", "unix")


def find(process: Process, inode: int) -> Socket | None:
    """`tcp 10.0.0.1:4242 -> 10.0.0.2:1094, established`, or the path of a unix socket; None if it is unknown."""
    for table in INTERNET:
        for line in process.lines(f"net/{table}")[1:]:
            words = line.split()
            if len(words) > 9 and words[9] == str(inode):
                return _internet(table, words)
    # the kernel shows these paths as they are, so whoever has a line's end in one writes lines of his own
    lines = {line for line in process.lines("net/unix")[1:] if line.split(maxsplit=7)[6:7] == [str(inode)]}
    if len(lines) > 1:
        return Socket("unix socket whose name is not known", "unix")
    for line in lines:
        words = line.split(maxsplit=7)
        return Socket(f"unix socket {words[7]}", "unix") if len(words) > 7 else NAMELESS
    return None


def other_end(process: Process, end: Socket) -> int:
    """The inode of a TCP socket's other end, if that is on this address, too; 0 if it is elsewhere, or gone.

    A process of the network namespace has both in its tables.
    """
    if end.protocol != "tcp" or not end.peer or end.here.rpartition(":")[0] != end.peer.rpartition(":")[0]:
        return 0
    port = f":{int(end.peer.rpartition(':')[2]):04X} "
    for table in ("tcp", "tcp6"):
        for line in process.lines(f"net/{table}")[1:]:
            if port not in line:  # addresses are dear to read, and there can be many lines
                continue
            words = line.split()
            other = _internet(table, words) if len(words) > 9 else None
            if other is not None and (other.here, other.peer) == (end.peer, end.here) and words[9].isdigit():
                return int(words[9])
    return 0


def inode_of(target: str) -> int:
    """The number in the link `socket:[1234]`; 0 if that is no socket."""
    found = re.fullmatch(r"socket:\[(\d+)\]", target)
    return int(found[1]) if found else 0


def _internet(table: str, words: list[str]) -> Socket | None:
    protocol = table.rstrip("6")
    try:
        here, there = _address(words[1]), _address(words[2])
        number = int(words[3], 16) if protocol == "tcp" else 0
    except ValueError:
        return None
    state = f", {_STATES.get(number, 'in an unknown state')}" if protocol == "tcp" else ""
    if there.endswith(":0"):
        return Socket(f"{protocol} {here}{state}", protocol, is_listening=number == _LISTENING)
    return Socket(f"{protocol} {here} -> {there}{state}", protocol, there, here)


def _address(text: str) -> str:
    """`127.0.0.1:80` of `0100007F:0050`: words of 32 bits, each in the machine's order."""
    host, _, port = text.partition(":")
    words = bytes.fromhex(host)
    packed = b"".join(words[at : at + 4][::-1] for at in range(0, len(words), 4))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None) or address
    name = f"[{mapped}]" if mapped.version == 6 else str(mapped)
    return f"{name}:{int(port, 16)}"
