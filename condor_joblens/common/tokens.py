"""Who may speak to a server of the site, by token: the server keeps the SHA-256 of each, never the token itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError

NODE, ACCESS_POINT, BOTH = "node", "access-point", "both"


@dataclass(frozen=True)
class Who:
    """By a token."""

    role: str
    name: str  # of a node: the host of its slots

    @property
    def is_node(self) -> bool:
        """Whether commands are carried to it."""
        return self.role in (NODE, BOTH)

    @property
    def is_access_point(self) -> bool:
        """Whether its users' commands are carried."""
        return self.role in (ACCESS_POINT, BOTH)


def digest(token: str) -> str:
    """What stands for a token in the file of tokens."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_tokens(text: str) -> dict[str, Who]:
    """SHA-256 (hexadecimal) -> who; a line `ROLE NAME SHA256` each. Raises JobLensError with the wrong line."""
    found: dict[str, Who] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[0] not in (NODE, ACCESS_POINT, BOTH) or len(words[2]) != 64:
            raise JobLensError(f"line {number} of the tokens is not `node|access-point|both NAME SHA256`")
        found[words[2].lower()] = Who(words[0], words[1])
    return found
