"""The entries of a site, on the relay server's machine: a file, and the key by which they are signed.

Both lie in a folder of the server's own. A later list has a higher serial, also after a restart and if the clock is
set back: nodes take no earlier one.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

from condor_joblens.common import files
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import entries as signed
from condor_joblens.control.entries import BadEntries, Entry, EntryList
from condor_joblens.control.keys import key_at, public_half, text_of

KEY, LIST = "online_key", "entries"
_SAME_FOR = 1000


class EntryStore:
    """What holds now."""

    def __init__(self, folder: str, clock: Callable[[], float] = time.time) -> None:
        """Makes the key if it is missing. `clock` gives seconds since 1970. Raises JobLensError, ImportError."""
        self._key, self._clock = key_at(os.path.join(folder, KEY)), clock
        self._path = os.path.join(folder, LIST)
        self.held = self._read()
        self._signed: tuple[EntryList | None, int, bytes] = None, 0, b""  # and when, in milliseconds since 1970

    @property
    def public_key(self) -> str:
        """For JOBLENS_HUB_KEY on nodes."""
        return text_of(public_half(self._key))

    def _read(self) -> EntryList:
        try:
            with open(self._path, "rb") as file:
                return signed.verify(file.read(signed.MAX_BYTES + 1), public_half(self._key))
        except FileNotFoundError:
            return EntryList(0, 0, ())
        except (OSError, BadEntries) as error:
            raise JobLensError(f"{self._path}: {error}: remove it, and add its entries again") from None

    def holding(self) -> list[Entry]:
        """Those that have not ended."""
        now = self._clock() * 1000
        return [entry for entry in self.held.entries if now < entry.ends]

    def add(self, entry: Entry) -> None:
        """From now on it holds. Raises BadEntries, OSError."""
        signed.check(entry)
        self._keep([*self.holding(), entry])

    def check_room(self, entry: Entry) -> None:
        """Returns if it could be added. Raises BadEntries."""
        signed.sign(dataclasses.replace(self.held, entries=(*self.holding(), entry)), self._key)

    def end(self, name: str) -> None:
        """From now on it does not. Raises OSError."""
        self._keep([entry for entry in self.holding() if entry.name != name])

    def packet(self) -> bytes:
        """The list, signed within a second: a node that gets it can tell whether their clocks agree."""
        now, (held, issued, packet) = int(self._clock() * 1000), self._signed
        if held is not self.held or not 0 <= now - issued < _SAME_FOR:  # thousands of nodes may come at once
            packet = signed.sign(dataclasses.replace(self.held, issued=now), self._key)
            self._signed = self.held, now, packet
        return packet

    def question(self, entry: Entry) -> bytes:
        """To ask nodes how many jobs this entry would be for. Raises BadEntries."""
        return signed.sign(EntryList(0, int(self._clock() * 1000), (entry,)), self._key, signed.QUESTION)

    def _keep(self, entries: list[Entry]) -> None:
        """On the disk first: what a node was told is not forgotten here. Raises BadEntries, OSError."""
        now = int(self._clock() * 1000)
        new = EntryList(max(self.held.serial + 1, now), now, tuple(entries))
        files.write(self._path, signed.sign(new, self._key), 0o600, sync=True)
        self.held = new
