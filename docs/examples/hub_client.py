"""A client of the hub's JSON interface, in one file, with Python's own library alone. Copy it where you need it.

hub = Hub("https://joblens.example.org", token="joblens_...")     # joblens-hub token add
hub = Hub("unix:/run/joblens-hub/pages.sock")                     # on the hub's machine, as yourself
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any


class HubError(Exception):
    """What the hub says is wrong, in a sentence."""


class Hub:
    """Each question has a connection of its own."""

    def __init__(self, address: str, token: str = "") -> None:
        self._address, self._token = address, token

    def ask(self, path: str, **parameters: Any) -> dict[str, Any]:
        """`/api/v1/PATH` as JSON; lists are written with commas. Raises HubError, OSError."""
        given = {
            name: ",".join(value) if isinstance(value, (list, tuple)) else value for name, value in parameters.items()
        }
        while True:
            status, body = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(given)}")
            if status != 429:
                break
            time.sleep(1)  # others' questions, or our own, are being answered
        answer: dict[str, Any] = json.loads(body)
        if status != 200:
            raise HubError(answer["error"])
        return answer

    def jobs(self, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Runs, each with the columns that were asked for: page after page, until there are no more."""
        while True:
            answer = self.ask("jobs", **parameters)
            yield from answer["jobs"]
            if not answer["next"]:
                return
            parameters["after"] = answer["next"]

    def series(self, run: str, *metrics: str, **parameters: Any) -> dict[str, Any]:
        """Metrics of one run over time."""
        return self.ask(f"job/{urllib.parse.quote(run, safe='')}/series", metrics=metrics, **parameters)

    def summary(self, by: str, **parameters: Any) -> list[dict[str, Any]]:
        """Sums of runs that have something in common, the greatest groups first."""
        groups: list[dict[str, Any]] = self.ask("summary", by=by, **parameters)["groups"]
        return groups

    def nodes(self, **parameters: Any) -> list[dict[str, Any]]:
        """Each node in a word, with its reason; the worst first."""
        nodes: list[dict[str, Any]] = self.ask("nodes", **parameters)["nodes"]
        return nodes

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"} if self._token else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        kind, _, rest = self._address.partition(":")
        if kind == "unix":
            connection = http.client.HTTPConnection("localhost", timeout=120)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(120)
            connection.sock.connect(rest)
            return connection
        url = urllib.parse.urlsplit(self._address)
        made = http.client.HTTPSConnection if kind == "https" else http.client.HTTPConnection
        return made(url.hostname or "", url.port, timeout=120)
