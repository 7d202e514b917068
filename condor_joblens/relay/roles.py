"""What people of the relay server's machine are to the site: a file of its administrator's says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError
from condor_joblens.control.entries import Role

_LINES = "`administrator NAME`, `operator NAME`, `manager NAME GROUP` or `owners DOMAIN`"


@dataclass(frozen=True)
class Roles:
    """Who is what. Root is an administrator: the key by which entries are signed is his anyway."""

    staff: dict[str, Role]  # administrators and operators, by the name of a user of this machine
    groups: dict[str, Sequence[str]]  # accounting groups by the name of their manager
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

    def may(self, name: str, group: str) -> bool:
        """Whether he manages this group, or one above it."""
        return any(group == own or group.startswith(f"{own}.") for own in self.groups.get(name, ()))


def read_roles(text: str) -> Roles:
    """A line each. Raises JobLensError with the wrong one."""
    staff: dict[str, Role] = {}
    groups: dict[str, list[str]] = {}
    domain = ""
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
        else:
            raise JobLensError(f"line {number} of the roles is not {_LINES}")
    return Roles(staff, dict(groups), domain)
