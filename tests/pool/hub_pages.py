"""A hub's JSON as root gets it, by the Unix socket for people's own programs."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class HubPages:
    """Of the hub whose sockets lie in this folder."""

    folder: str

    def ask(self, path: str) -> Any:
        """The answer; AssertionError if there is none."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect(f"{self.folder}/pages.sock")
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, body
        return json.loads(body)

    def jobs(self, state: str) -> dict[str, dict[str, Any]]:
        """A page of jobs by their ids; of two pools' jobs with one id, the newer."""
        return {row["JobId"]: row for row in reversed(self.ask(f"/jobs.json?state={state}")["jobs"])}

    def artifacts(self, run: str) -> set[str]:
        """The kinds of those to which a run's page leads."""
        return {one["kind"] for one in self.ask(f"/job/{quote(run, safe='')}.json")["artifacts"]}
