"""A site's names for endpoints: JOBLENS_ENDPOINT_NAMES, `PREFIX[:PORT] = NAME` with commas between.

    [2001:1458::/32]:1094 = xrootd-cern, 192.0.2.0/24:8000 = frontier, *:3128 = squid

The longest prefix wins, and of two with the same prefix the one with the port.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Union

from condor_joblens.common.errors import printable

MAX_ENTRIES = 1000
NAME_BYTES = 32

_PORT = r"(?::(?P<port>\d{1,5}))?"
_TARGET = re.compile(rf"(?:\[(?P<six>[^\]]*)\]|(?P<four>[^:\[\]]*)){_PORT}$", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@/-]*$", re.ASCII)
_MAPPED = 0xFFFF << 32  # ::ffff:0:0/96
ANYWHERE, FOUR = -1, 96  # as lengths of a prefix: of *, and of IPv4 as a whole

_Key = tuple[int, int]  # network, as a 128-bit number with IPv4 mapped, and port (0: any)


@dataclass(frozen=True)
class Names:
    """A table of names. `problems` has a line for each entry that is not in it, and why."""

    entries: int = 0
    problems: tuple[str, ...] = ()
    _by_length: dict[int, dict[_Key, str]] = field(default_factory=dict)  # longest prefix first; ANYWHERE: *

    def find(self, address: bytes, port: int) -> str:
        """The name of an endpoint (16 bytes in network order, IPv4 mapped; port 0: none); empty where it has none."""
        number = int.from_bytes(address, "big")
        is_four = number >> 32 == 0xFFFF
        for length, table in self._by_length.items():
            if is_four and ANYWHERE < length < FOUR:  # ::/0 is IPv6's alone
                continue
            network = 0 if length == ANYWHERE else number >> (128 - length) << (128 - length)
            name = table.get((network, port)) or table.get((network, 0))
            if name:
                return name
        return ""


def parse(text: str) -> Names:
    """The table that `text` means. Never fails: what is wrong in it is in `problems`, and the rest is used."""
    problems: list[str] = []
    tables: dict[int, dict[_Key, str]] = {}
    entries = 0
    for entry in _entries(text):
        try:
            if entries == MAX_ENTRIES:
                raise ValueError(f"one too many: {MAX_ENTRIES} are read")
            length, network, port, name = _parsed(entry)
            if tables.setdefault(length, {}).setdefault((network, port), name) != name:
                raise ValueError("has a name already: the first one stands")
            entries += 1
        except ValueError as error:
            problems.append(f"entry {printable(entry, 60)!r}: {error}")
            if entries == MAX_ENTRIES:
                break
    by_length = {length: tables[length] for length in sorted(tables, reverse=True)}
    return Names(entries, tuple(problems), by_length)


def _entries(text: str) -> Iterator[str]:
    return (entry for entry in (part.strip() for part in text.split(",")) if entry)


def _parsed(entry: str) -> tuple[int, int, int, str]:
    """Prefix length, network, port and name. Raises ValueError that says what would be right."""
    target, equals, name = (part.strip() for part in entry.partition("="))
    if not equals:
        raise ValueError("is not PREFIX[:PORT] = NAME")
    if not _NAME.match(name) or len(name) > NAME_BYTES:
        raise ValueError(f"the name must be of at most {NAME_BYTES} letters, digits and . _ + @ / -")
    host, port = _split(target)
    if host == "*":
        return ANYWHERE, 0, port, name
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        raise ValueError(f"{printable(host, 50)!r} is no address or prefix such as 192.0.2.0/24") from None
    if "/" in host and str(network.network_address) != str(ipaddress.ip_interface(host).ip):
        raise ValueError(f"has bits beyond its prefix: is {network} meant?")
    return *_normal(network), port, name


def _split(target: str) -> tuple[str, int]:
    if target.count(":") > 1 and "[" not in target:
        return target, 0  # IPv6 alone needs no brackets
    found = _TARGET.match(target)
    if found is None:
        raise ValueError("is not PREFIX[:PORT] = NAME; an IPv6 prefix with a port stands in brackets")
    port = int(found["port"] or 0)
    if found["port"] is not None and not 0 < port < 65536:
        raise ValueError("the port must be from 1 to 65535")
    six = found["six"]
    if six is not None and ":" not in six:
        raise ValueError("in brackets stands an IPv6 prefix")
    return (six if six is not None else found["four"]), port


def _normal(network: Union[ipaddress.IPv4Network, ipaddress.IPv6Network]) -> tuple[int, int]:
    """Prefix length and number of the network in 128 bits, IPv4 mapped."""
    number = int(network.network_address)
    if network.version == 4:
        return FOUR + network.prefixlen, _MAPPED | number
    return network.prefixlen, number
