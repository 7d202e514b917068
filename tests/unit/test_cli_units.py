"""Numbers as a person reads them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.cli import units

SCALE = {
    **{unit: 1024**i for i, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))},
    **{unit: 1000**i for i, unit in enumerate(("B", "kB", "MB", "GB", "TB", "PB", "EB"))},
}


@given(st.integers(0, 2**63))
def test_memory_and_volume_mean_what_they_were_given(size):
    for text, greatest in ((units.memory(size), 1024), (units.volume(size), 1000)):
        value, unit = text.split(" ")
        assert abs(float(value) * SCALE[unit] - size) <= 0.05 * SCALE[unit] + 0.5
        assert float(value) < greatest
        assert len(text) <= 10


@given(st.floats(0, 1e9))
def test_durations_are_right_to_their_smaller_unit(seconds):
    sizes = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"([\d.]+) (\w+)", units.duration(seconds))
    assert 1 <= len(parts) <= 2
    told = sum(float(number) * sizes[unit] for number, unit in parts)
    smaller = {"ms": 0.001, "s": 1, "min": 1, "h": 60, "d": 3600}[parts[0][1]]
    assert abs(told - seconds) <= smaller


@given(st.floats(0, 1e8))
def test_a_clock_is_narrow_and_goes_down_to_its_last_digits(seconds):
    text = units.clock(seconds)
    days, _, rest = text.rpartition("+")
    numbers = [int(part) for part in rest.split(":")]
    minutes_first = bool(days)
    told = 0
    for number in numbers:
        told = told * 60 + number
    told = told * 60 if minutes_first else told
    told += 86400 * int(days or 0)
    assert 0 <= int(seconds) - told < (60 if days else 1)
    assert len(text) <= 10


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (units.memory(0), "0 B"),
        (units.memory(1023), "1023 B"),
        (units.memory(2**30 - 1), "1.0 GiB"),
        (units.memory(1.5 * 2**30), "1.5 GiB"),
        (units.volume(999_960), "1.0 MB"),
        (units.rate(3_400_000), "3.4 MB/s"),
        (units.cores(0.984), "0.98"),
        (units.cores(9.996), "10.0"),
        (units.cores(127.96), "128"),
        (units.amount(1.0), "1"),
        (units.amount(2.5), "2.5"),
        (units.count(1, "process", "processes"), "1 process"),
        (units.count(12345, "process", "processes"), "12,345 processes"),
        (units.count(0, "job"), "0 jobs"),
        (units.percent(1, 3), "33 %"),
        (units.duration(-3), "0.0 s"),
        (units.duration(0.0004), "0.0 s"),
        (units.duration(0.04), "40 ms"),
        (units.duration(0.0994), "99 ms"),
        (units.duration(0.0995), "0.1 s"),
        (units.duration(0.44), "0.4 s"),
        (units.duration(59.7), "1 min"),
        (units.duration(185), "3 min 5 s"),
        (units.duration(11520), "3 h 12 min"),
        (units.duration(183600), "2 d 3 h"),
        (units.latency(0.0123), "12.3 ms"),
        (units.latency(0.00008), "0.08 ms"),
        (units.latency(1.25), "1.2 s"),
        (units.clock(5), "0:05"),
        (units.clock(11525), "3:12:05"),
        (units.clock(2 * 86400 + 11525), "2+03:12"),
    ],
)
def test_examples(told, expected):
    assert told == expected
