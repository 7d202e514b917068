"""Who may speak to a server of the site: by token, or by certificate, if the site's TLS proxy has verified it.

Of tokens the server keeps the SHA-256, never the token itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from condor_joblens.common.errors import JobLensError

CERTIFICATE = "certificate"
"""What stands in a line instead of a digest: the machine's certificate says its name."""

ANY = "*"
"""The name of a line for each machine with a certificate that has no line of its own."""

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PART = re.compile(r"[A-Za-z0-9.]{1,64}=[^\\\"+,;<>=#\x00-\x1f]{0,256}")

NODE, ACCESS_POINT, BOTH = "node", "access-point", "both"

REMOTE = "remote"
"""A person, or people, who ask from elsewhere. By a token alone: no machine is one."""


@dataclass(frozen=True)
class Who:
    """By a token, or a certificate."""

    role: str
    name: str  # of a node: the host of its slots; of an access point: its schedd's host, if people ask from elsewhere

    @property
    def is_node(self) -> bool:
        """Whether commands are carried to it."""
        return self.role in (NODE, BOTH)

    @property
    def is_access_point(self) -> bool:
        """Whether its users' commands are carried."""
        return self.role in (ACCESS_POINT, BOTH)

    @property
    def is_remote(self) -> bool:
        """Whether it asks access points, and has what they answer carried to nodes."""
        return self.role == REMOTE


def digest(token: str) -> str:
    """What stands for a token in the file of tokens."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def read_tokens(text: str) -> dict[str, Who]:
    """SHA-256 (hexadecimal), or by_certificate's key -> who; a line `ROLE NAME SHA256` or `ROLE NAME certificate` each.

    Raises JobLensError with the wrong line.
    """
    found: dict[str, Who] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 3 and words[2] == CERTIFICATE and words[0] in (NODE, ACCESS_POINT, BOTH):
            if words[1] == ANY and words[0] != NODE:
                raise JobLensError(f"line {number} of the tokens: by a certificate, {ANY} is for nodes alone")
            found.setdefault(_key(words[1]), Who(words[0], words[1]))
            continue
        if len(words) != 3 or words[0] not in (NODE, ACCESS_POINT, BOTH, REMOTE) or len(words[2]) != 64:
            raise JobLensError(
                f"line {number} of the tokens is not `node|access-point|both NAME SHA256|certificate`, "
                "nor `remote NAME SHA256`"
            )
        found[words[2].lower()] = Who(words[0], words[1])
    return found


def by_certificate(known: Mapping[str, Who], name: str) -> Who | None:
    """Who the machine with a certificate of this name is; None if the file of tokens has no line for it."""
    if not _HOST.fullmatch(name):
        return None
    if (own := known.get(_key(name))) is not None:
        return own
    any_node = known.get(_key(ANY))
    return None if any_node is None else replace(any_node, name=name)


def name_in(subject: str) -> str:
    """The one host that a certificate's subject (RFC 2253: CN=node01,O=site) names; empty if that is not plain.

    What needs an escape is taken for nothing, so nobody can write a CN into another part of his subject.
    """
    parts = subject.split(",")
    if len(subject) > 2000 or not all(_PART.fullmatch(part.strip(" ")) for part in parts):
        return ""
    names = [part.strip(" ")[3:] for part in parts if part.strip(" ").upper().startswith("CN=")]
    return names[0] if len(names) == 1 and _HOST.fullmatch(names[0]) else ""


def _key(name: str) -> str:
    """No digest has a blank."""
    return f"{CERTIFICATE} {name}"
