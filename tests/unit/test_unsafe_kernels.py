"""Kernels that a sampler can lock up are refused by name, and no others."""

from __future__ import annotations

import pytest

from condor_joblens.common.unsafe_kernels import why_refused


@pytest.mark.parametrize(
    ("release", "version", "named"),
    [
        ("5.18.19", "#1 SMP", ""),
        ("5.19.0-50-generic", "#50-Ubuntu SMP", "5.19.0"),
        ("6.0.7", "#1 SMP", "6.0.7"),
        ("6.1.0-9-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.27-1 (2023-05-08)", "6.1.27"),
        ("6.1.0-18-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)", ""),
        ("6.1.35", "#1 SMP", "6.1.35"),
        ("6.1.36", "#1 SMP", ""),
        ("6.2.16", "#1 SMP", "6.2.16"),
        ("6.3.10", "#1 SMP", ""),
        ("6.4.0", "#1 SMP", ""),
        ("6.18.44-fc", "#1 SMP", ""),
        ("something", "else", ""),
    ],
)
def test_a_kernel_is_refused_if_it_has_the_fault(release: str, version: str, named: str) -> None:
    """By its own number, which can be in the version alone."""
    why = why_refused(release, version)
    assert (f"kernel {named} " in why) if named else why == ""
