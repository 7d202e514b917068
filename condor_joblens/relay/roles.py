"""What people of the relay server's machine are to the site: a file of its administrator's says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError
from condor_joblens.control.entries import Role, is_of_group

_LINES = "`administrator NAME`, `operator NAME`, `manager NAME GROUP`, `hub NAME` or `owners DOMAIN`"


@dataclass(frozen=True)
class Roles:
    """Who is what. Root is an administrator: the key by which entries are signed is his anyway."""

    staff: dict[str, Role]  # administrators and operators, by the name of a user of this machine
    groups: dict[str, Sequence[str]]  # accounting groups by the name of their manager
    hub: str = ""  # the user of the pages' hub on this machine: believed about who asks there, and what he is
    domain: str = ""  # of this machine's users in the pool: alice is alice@DOMAIN; empty: owners say nothing here

    def of(self, name: str) -> Role:
        """What a user of this machine is. Raises JobLensError if he is nothing."""
        if name == "root":
            return Role.ADMINISTRATOR
        if name in self.staff:
            return self.staff[name]
        if name in self.groups:
            return Role.MANAGER
        if name and self.domain:
            return Role.OWNER
        raise JobLensError("you have no role here: the site's administrator gives them (--roles)")


def within(group: str, groups: Sequence[str]) -> bool:
    """Whether a group is one of these, or below one."""
    return any(is_of_group(group, own) for own in groups)


def read_roles(text: str) -> Roles:
    """A line each. Raises JobLensError with the wrong one."""
    staff: dict[str, Role] = {}
    groups: dict[str, list[str]] = {}
    domain = hub = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 2 and words[0] in ("administrator", "operator"):
            staff.setdefault(words[1], Role(words[0]))
        elif len(words) == 3 and words[0] == "manager":
            groups.setdefault(words[1], []).append(words[2])
        elif len(words) == 2 and words[0] == "owners":
            domain = words[1]
        elif len(words) == 2 and words[0] == "hub":
            hub = words[1]
        else:
            raise JobLensError(f"line {number} of the roles is not {_LINES}")
    return Roles(staff, dict(groups), hub, domain)
