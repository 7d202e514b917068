"""The file of tokens: read again when it has changed."""

from __future__ import annotations

import os
import sys
import threading

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import Who, read_tokens


class TokenFile:
    """Whose a token is; any thread may ask."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Who] = {}
        self._seen: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Who]:
        """By SHA-256. A file that is wrong now changes nothing, and costs a line in the log each time it changes."""
        with self._lock:
            try:
                status = os.stat(self._path)
                seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            except OSError:
                return self._known
            if seen != self._seen:
                self._seen = seen
                try:
                    self._known = self.read()
                except (JobLensError, OSError) as error:
                    print(f"joblens-hub: {error}: the tokens stay as they were", file=sys.stderr, flush=True)
            return self._known

    def read(self) -> dict[str, Who]:
        """As the file is now. Raises JobLensError, OSError."""
        with open(self._path, encoding="utf-8", errors="replace") as file:
            return read_tokens(file.read())
