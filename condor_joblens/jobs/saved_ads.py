"""What is needed to ask the policies again: each job's ad as it was at its start, and what they remember of the run.

In files, of which an agent that is started anew knows; they are joblensd's alone, and /run is gone at boot. The ad
can't be read from the job's folder again: once the job runs its owner can have put another in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from condor_joblens.common import files
from condor_joblens.common.errors import JobLensError

FOLDER = "ads"
"""What the folder is called in the run folder."""

MAX_BYTES = 64 << 20
"""Of all ads together: a thousand ordinary ones take 10 MB."""

OWNER_BYTES = MAX_BYTES // 4
"""Of all ads of one owner: those of others have room, whatever he submits."""


class SavedAds:
    """Ads and memories by the id of the job's cgroup."""

    def __init__(self, folder: str) -> None:
        """Makes the folder, mode 0700. Raises JobLensError where that is impossible."""
        self._folder = folder
        self._owners: dict[str, str] = {}  # id of the job's cgroup -> whose room its files take
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            self._sizes = {name: os.stat(os.path.join(folder, name)).st_size for name in os.listdir(folder)}
        except OSError as error:
            raise JobLensError(f"{folder} can't be made: {error.strerror}; make room or set JOBLENS_RUN_DIR") from None

    def keep(self, cgroup_id: int, ad: bytes, owner: str) -> bool:
        """Keeps the job's ad. False if `owner` or all have no room: the policies can't be asked about it again."""
        self.assign(cgroup_id, owner)
        more = len(ad) - self._sizes.get(f"{cgroup_id}.ad", 0)
        of_owner = sum(size for name, size in self._sizes.items() if self._owners.get(_job(name)) == owner)
        if of_owner + more > OWNER_BYTES or sum(self._sizes.values()) + more > MAX_BYTES:
            return False
        return self._write(f"{cgroup_id}.ad", ad)

    def assign(self, cgroup_id: int, owner: str) -> None:
        """Says whose job it is, which the files do not tell an agent that is started anew."""
        self._owners[str(cgroup_id)] = owner

    def has(self, cgroup_id: int) -> bool:
        """Whether the job's ad is kept."""
        return f"{cgroup_id}.ad" in self._sizes

    def ad(self, cgroup_id: int) -> bytes | None:
        """The job's ad, None where it isn't kept."""
        return self._read(f"{cgroup_id}.ad")

    def remember(self, cgroup_id: int, state: Mapping[str, Any]) -> None:
        """Keeps what the policies want to know of the run when they are asked again."""
        if state:
            self._write(f"{cgroup_id}.json", json.dumps(state).encode())
        else:
            self._remove(f"{cgroup_id}.json")

    def memory(self, cgroup_id: int) -> dict[str, Any]:
        """What `remember` kept, or nothing."""
        data = self._read(f"{cgroup_id}.json")
        with contextlib.suppress(ValueError):
            state = json.loads(data) if data else {}
            return state if isinstance(state, dict) else {}
        return {}

    def forget(self, cgroup_id: int) -> None:
        """The job is over."""
        for name in (f"{cgroup_id}.ad", f"{cgroup_id}.json"):
            self._remove(name)
        self._owners.pop(str(cgroup_id), None)

    def keep_only(self, cgroup_ids: Iterable[int]) -> None:
        """Forgets all jobs but these."""
        kept = {str(cgroup_id) for cgroup_id in cgroup_ids}
        for name in list(self._sizes):
            if _job(name) not in kept:
                self._remove(name)

    def _write(self, name: str, data: bytes) -> bool:
        try:
            files.write(os.path.join(self._folder, name), data, 0o600)
        except OSError:
            return False
        self._sizes[name] = len(data)
        return True

    def _read(self, name: str) -> bytes | None:
        if name not in self._sizes:
            return None
        try:
            with open(os.path.join(self._folder, name), "rb") as file:
                return file.read()
        except OSError:
            return None

    def _remove(self, name: str) -> None:
        if self._sizes.pop(name, None) is not None:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, name))


def _job(name: str) -> str:
    """The cgroup's id in the name of a file."""
    return name.partition(".")[0]
