"""The site's table of names for endpoints: what it says, what it refuses, and that a look-up finds the closest."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import config_parser
from condor_joblens.common.endpoint_names import MAX_ENTRIES, Names, parse

TABLE = "[2001:1458::/32]:1094 = xrootd-cern, 192.0.2.0/24:8000 = frontier, *:3128 = squid"


def packed(address: str) -> bytes:
    found = ipaddress.ip_address(address)
    return found.packed if found.version == 6 else b"\0" * 10 + b"\xff\xff" + found.packed


def find(table: str, address: str, port: int) -> str:
    names = parse(table)
    assert names.problems == ()
    return names.find(packed(address), port)


@pytest.mark.parametrize(
    "address, port, name",
    [
        ("2001:1458:d00::1", 1094, "xrootd-cern"),
        ("2001:1458:d00::1", 443, ""),
        ("2001:1459::1", 1094, ""),
        ("192.0.2.255", 8000, "frontier"),
        ("192.0.3.0", 8000, ""),
        ("198.51.100.1", 3128, "squid"),
        ("2001:db8::7", 3128, "squid"),
        ("192.0.2.9", 0, ""),
    ],
)
def test_the_example_of_the_documents(address: str, port: int, name: str) -> None:
    assert find(TABLE, address, port) == name


def test_the_longest_prefix_wins_and_then_the_port() -> None:
    table = "* = any, *:80 = web, 10.0.0.0/8 = site, 10.0.0.0/8:80 = site-web, 10.1.0.0/16 = rack, 10.1.2.3 = one"
    assert find(table, "192.0.2.1", 443) == "any"
    assert find(table, "192.0.2.1", 80) == "web"
    assert find(table, "10.9.9.9", 443) == "site"
    assert find(table, "10.9.9.9", 80) == "site-web"
    assert find(table, "10.1.9.9", 80) == "rack"
    assert find(table, "10.1.2.3", 80) == "one"


def test_addresses_of_v4_are_not_in_prefixes_of_v6() -> None:
    assert find("::/0 = six", "192.0.2.1", 80) == ""
    assert find("0.0.0.0/0 = four", "::1", 80) == ""
    assert find("2001:db8::1 = plain, ::ffff:192.0.2.0/120 = mapped", "192.0.2.77", 80) == "mapped"


@pytest.mark.parametrize(
    "entry, said",
    [
        ("squid", "is not PREFIX[:PORT] = NAME"),
        ("192.0.2.0/24 =", "the name must be"),
        ("192.0.2.0/24 = two words", "the name must be"),
        ("192.0.2.0/24 = " + "n" * 33, "the name must be"),
        ("192.0.2.0/24 = evil\x1b[2J", "the name must be"),
        ("192.0.2.0/33 = x", "'192.0.2.0/33' is no address or prefix"),
        ("300.1.2.3:80 = x", "'300.1.2.3' is no address or prefix"),
        ("cern.ch:80 = x", "'cern.ch' is no address or prefix"),
        ("192.0.2.1/24 = x", "has bits beyond its prefix: is 192.0.2.0/24 meant?"),
        ("2001:db8::1/32 = x", "has bits beyond its prefix: is 2001:db8::/32 meant?"),
        ("192.0.2.1:0 = x", "the port must be from 1 to 65535"),
        ("192.0.2.1:65536 = x", "the port must be from 1 to 65535"),
        ("[192.0.2.1]:80 = x", "in brackets stands an IPv6 prefix"),
        ("[2001:db8::/32 = x", "is not PREFIX[:PORT] = NAME"),
        (":80 = x", "'' is no address or prefix"),
        ("*:80 = other", "has a name already: the first one stands"),
    ],
)
def test_nonsense_is_one_line_that_names_the_entry_and_the_rest_is_used(entry: str, said: str) -> None:
    names = parse(f"*:80 = web, {entry}, 192.0.2.9:80 = nine")
    (problem,) = names.problems
    assert said in problem and problem.isprintable() and entry[:5] in problem
    assert names.find(packed("198.51.100.1"), 80) == "web"
    assert names.find(packed("192.0.2.9"), 80) == "nine"


def test_the_configuration_says_what_is_wrong_with_an_entry_and_takes_the_others() -> None:
    found, problems = config_parser.parse({"JOBLENS_ENDPOINT_NAMES": "nonsense, *:3128 = squid"})
    (problem,) = problems
    assert problem.startswith("JOBLENS_ENDPOINT_NAMES: entry 'nonsense': is not PREFIX[:PORT] = NAME")
    assert "condor_reconfig" in problem
    assert found.endpoint_names.find(packed("192.0.2.1"), 3128) == "squid"


def test_a_table_is_bounded() -> None:
    names = parse(",".join(f"*:{port + 1} = p{port}" for port in range(MAX_ENTRIES + 500)))
    assert names.entries == MAX_ENTRIES and len(names.problems) == 1


@given(st.text(max_size=200))
def test_any_text_is_a_table_and_a_bounded_list_of_printable_problems(text: str) -> None:
    names = parse(text)
    assert names.entries + len(names.problems) <= text.count(",") + 1
    assert all(problem.isprintable() and problem.isascii() and len(problem) < 300 for problem in names.problems)
    assert isinstance(names.find(packed("192.0.2.1"), 80), str)


fours = st.builds(lambda n: f"10.0.{n >> 4 & 3}.{n & 15}", st.integers(0, 63))
sixes = st.builds(lambda n: f"2001:db8::{n & 3:x}:{n >> 2:x}", st.integers(0, 63))
ports = st.sampled_from([0, 80, 443])


@st.composite
def prefixes(draw: st.DrawFn) -> tuple[str, int]:
    address = draw(st.one_of(fours, sixes, st.just("*")))
    port = draw(ports)
    if address == "*":
        return "*", port
    longest = 32 if "." in address else 128
    length = draw(st.sampled_from([0, 8, longest - 12, longest - 2, longest]))
    return str(ipaddress.ip_network(f"{address}/{length}", strict=False)), port


def brute_force(entries: dict[tuple[str, int], str], address: str, port: int) -> str:
    at = ipaddress.ip_address(address)
    matching = []
    for (prefix, wanted), name in entries.items():
        if wanted not in (0, port):
            continue
        if prefix == "*":
            matching.append((-1, wanted != 0, name))
            continue
        network = ipaddress.ip_network(prefix)
        if network.version == at.version and at in network:
            matching.append((network.prefixlen, wanted != 0, name))
    return max(matching)[2] if matching else ""


@given(
    st.lists(prefixes(), max_size=12, unique=True),
    st.lists(st.tuples(st.one_of(fours, sixes), ports), min_size=1, max_size=12),
)
def test_a_look_up_finds_what_trying_every_entry_finds(
    targets: list[tuple[str, int]], asked: list[tuple[str, int]]
) -> None:
    entries = {target: f"n{number}" for number, target in enumerate(targets)}
    written = [
        f"{f'[{prefix}]' if ':' in prefix else prefix}{f':{port}' if port else ''} = {name}"
        for (prefix, port), name in entries.items()
    ]
    names: Names = parse(", ".join(written))
    assert names.problems == () and names.entries == len(entries)
    for address, port in asked:
        assert names.find(packed(address), port) == brute_force(entries, address, port)
