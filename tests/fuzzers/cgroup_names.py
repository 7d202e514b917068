"""Names of cgroups, which a job's user may choose below its own, and lines of /proc/PID/cgroup."""

from __future__ import annotations

from condor_joblens.jobs.cgroups import parse_slot, slot_cgroup

SEEDS = [
    b"_var_lib_condor_execute_slot1_3@wn12.slice",
    b"condor_var_lib_condor_execute_slot1@wn12",
    b"_var_lib_condor_spool_local_univ_execute_7@ap",
    b"system.slice/htcondor/_a_slot1_1/below",
]
WORDS = [b"slot1_1", b"backfill2", b".slice", b"@", b"/", b"condor_", b"local_univ_execute"]
_EXECUTES = ["/var/lib/condor/execute", "/var/lib/condor/spool/local_univ_execute"]


def check(data: bytes) -> None:
    """A slot has a name without a host; a cgroup's slot is directly below its base."""
    name = data.decode("utf-8", "surrogateescape")
    slot = parse_slot(name, _EXECUTES)
    if slot is not None:
        assert "@" not in slot.name and slot.execute in (*_EXECUTES, "")
    base = "system.slice/htcondor"
    for cgroup in (name, f"{base}/{name}"):
        found = slot_cgroup(cgroup, [base])
        if found is not None:
            assert found.count("/") == 2 and (cgroup + "/").startswith(found + "/")
