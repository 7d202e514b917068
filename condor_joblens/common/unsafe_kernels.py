"""Kernels that can lock the machine up if a program at a timer reads a job's memory (bpf_probe_read_user).

With hardened copies (CONFIG_HARDENED_USERCOPY) the check of an address takes a lock that the interrupted task may hold.
The fault came with 5.19, and went with 6.4 and with releases of 6.1 and 6.3 in June 2023.
See parca-dev/parca-agent, issue 1675 and pull request 2070, and Debian bug 1033398.
"""

from __future__ import annotations

import re

FIRST, FIXED = (5, 19), (6, 4)
FIXED_RELEASES = {(6, 1): 36, (6, 3): 10}
"""The first release of these series of which it is certain."""


def why_refused(release: str, version: str) -> str:
    """Why nothing may sample on the kernel of which uname(2) says this; empty if it may.

    Distributions whose release has no number of its own (6.1.0-18-amd64) have it in the version (Debian 6.1.76-1).
    """
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    if not found:
        return ""
    series = int(found[1]), int(found[2])
    if not FIRST <= series < FIXED:
        return ""
    told = re.search(rf"\b{series[0]}\.{series[1]}\.(\d+)", version)
    number = int((told or found)[1 if told else 3] or 0)
    if series in FIXED_RELEASES and number >= FIXED_RELEASES[series]:
        return ""
    wanted = f"{series[0]}.{series[1]}.{FIXED_RELEASES[series]}" if series in FIXED_RELEASES else "6.4"
    kernel = f"{series[0]}.{series[1]}.{number}"
    return f"kernel {kernel} can lock the machine up when a job is sampled: boot {wanted} or later"
