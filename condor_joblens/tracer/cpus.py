"""How many CPUs there are."""

from __future__ import annotations


def possible_cpus() -> int:
    """One more than the greatest CPU number that this machine can have."""
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
        return int(file.read().strip().replace(",", "-").split("-")[-1]) + 1
