"""Whether what runs is what is installed and configured: versions, and knobs that have not been read again."""

from __future__ import annotations

from collections.abc import Iterator

from condor_joblens import __version__
from condor_joblens.cli.checks import programs
from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, ok, warn
from condor_joblens.common import condor_config, knob_digests
from condor_joblens.common.errors import printable

RESTART = "joblens restart: running jobs go on, and lose no number"


def versions(node: CheckedNode) -> Iterator[Finding]:
    """Of the joblensd that runs, and of what is installed. The page's is the check of the sink's."""
    facts = programs.facts_of(node)
    if facts is None:
        return  # joblensd does not run, which is said elsewhere
    running = printable(str(facts.get("Version") or "an earlier one"), 40)
    if running == __version__:
        yield ok(f"{__version__} is installed and runs")
    else:
        yield warn(f"{__version__} is installed, and joblensd {running} runs", RESTART)


def reconfigured(node: CheckedNode) -> Iterator[Finding]:
    """joblensd's knobs are those of the configuration as it is now."""
    facts = programs.facts_of(node)
    in_force = facts.get("Knobs") if facts is not None else None
    if not isinstance(in_force, dict):
        return  # joblensd does not run, or is of a version that does not tell
    told = {str(name): str(digest) for name, digest in in_force.items()}
    now = knob_digests.digests(condor_config.values(node.macros))
    by_reconfig, by_restart = knob_digests.changed(now, told)
    if by_reconfig:
        yield warn(f"joblensd has not read these since they changed: {_named(by_reconfig)}", "condor_reconfig")
    if by_restart:
        yield warn(f"joblensd takes these when it starts, and they have changed since: {_named(by_restart)}", RESTART)
    if not by_reconfig and not by_restart:
        yield ok("joblensd works with the knobs as they are now")


def _named(knobs: list[str]) -> str:
    return printable(" ".join(knobs), 300)
