"""As whom files may be touched at all: HTCondor's own user, and users that jobs can have. Never root."""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from condor_joblens.common.daemon import owner_of
from condor_joblens.common.privilege import user

MACROS = "CONDOR_IDS|SLOT[0-9_]+_USER"
"""A regular expression of the macros that say who jobs can be."""

LOGIN_DEFS = "/etc/login.defs"
_DEFAULTS = {"UID_MIN": 1000, "GID_MIN": 1000}


@dataclass(frozen=True)
class AllowedIds:
    """All ids from `least_uid` and `least_gid` on, and those in the lists."""

    least_uid: int
    uids: tuple[int, ...]
    least_gid: int
    gids: tuple[int, ...]

    def encode(self) -> str:
        """As one argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> AllowedIds:
        """The other way round. Raises ValueError, TypeError or KeyError."""
        found = json.loads(text)
        lists = {name: tuple(int(number) for number in found[name]) for name in ("uids", "gids")}
        return cls(least_uid=int(found["least_uid"]), least_gid=int(found["least_gid"]), **lists)


def allowed_ids(macros: Mapping[str, str], folders: Iterable[str], login_defs: str = LOGIN_DEFS) -> AllowedIds:
    """From HTCondor's configuration, the owners of its `folders` (LOG, EXECUTE ...), and this machine's login.defs.

    Users of slots and nobody may have smaller ids than people have.
    """
    least = _least(login_defs)
    ids = [owner_of(folder) for folder in folders]
    found = re.fullmatch(r"\s*(\d+)[.:](\d+)\s*", os.environ.get("CONDOR_IDS", "") or macros.get("CONDOR_IDS", ""))
    if found is not None:
        ids.append((int(found[1]), int(found[2])))
    names = [value.strip() for name, value in macros.items() if re.fullmatch("SLOT[0-9_]+_USER", name.upper())]
    ids += [_ids(user(name)) for name in ("condor", "nobody", *names)]
    known = [pair for pair in ids if pair is not None and 0 not in pair]
    uids, gids = (tuple(sorted({pair[place] for pair in known})) for place in (0, 1))
    return AllowedIds(least["UID_MIN"], uids, least["GID_MIN"], gids)


def _ids(found: pwd.struct_passwd | None) -> tuple[int, int] | None:
    return None if found is None else (found.pw_uid, found.pw_gid)


def _least(path: str) -> dict[str, int]:
    """UID_MIN and GID_MIN of this machine, where its file says nothing the usual ones."""
    least = dict(_DEFAULTS)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for name, value in re.findall(r"^\s*(UID_MIN|GID_MIN)\s+(\d{1,9})\b", file.read(), re.MULTILINE):
                least[name] = max(1, int(value))
    except OSError:
        pass
    return least
