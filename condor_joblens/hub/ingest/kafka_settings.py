"""Which brokers, as whom, which topics, and whom to believe there: the file of `--kafka`.

[kafka]
servers = broker1.example.org:9093, broker2.example.org:9093
security = sasl_ssl
user = joblens-hub
password_file = /etc/joblens-hub/kafka.password
nodes = *.example.org
queue = condor_q -global -allusers
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.settings_file import read_section

_SECURITIES = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TYPES = {"samples": "sample", "jobs": "job", "events": "event", "health": "health"}
"""A word of the file -> the type of all records of that topic. Profiles are not taken."""

_DEFAULTS = {
    **{"servers": "", "security": "plaintext", "mechanism": "SCRAM-SHA-512", "user": "", "password_file": ""},
    **{"authority": "", "certificate": "", "key": "", "group": "joblens-hub", "nodes": "*", "queue": ""},
    **{f"topic_{word}": f"joblens.{word}" for word in TYPES},
}


@dataclass(frozen=True)
class Settings:
    """As the file says."""

    values: Mapping[str, str]
    types: Mapping[str, str]  # topic -> the type of its records
    nodes: tuple[str, ...]  # patterns of names

    @property
    def group(self) -> str:
        """The consumer group: all hubs of one store share it."""
        return self.values["group"]

    @property
    def queue(self) -> str:
        """The command that asks the queues where jobs run; empty: none does."""
        return self.values["queue"]

    def client(self) -> dict[str, Any]:
        """The options of kafka-python's client. Raises JobLensError, OSError."""
        given = self.values
        options: dict[str, Any] = {
            "bootstrap_servers": _list(given["servers"]),
            "security_protocol": given["security"].upper(),
            "client_id": "joblens-hub",
        }
        if given["security"].endswith("ssl"):
            options["ssl_context"] = _tls(given)
        if given["security"].startswith("sasl"):
            with open(given["password_file"], encoding="utf-8") as file:
                password = file.read().rstrip("\r\n")
            options.update(
                sasl_mechanism=given["mechanism"], sasl_plain_username=given["user"], sasl_plain_password=password
            )
        return options


def read_settings(path: str) -> Settings:
    """Raises JobLensError with what is wrong, OSError."""
    given = read_section(path, "kafka", _DEFAULTS)
    for name, words in (("security", _SECURITIES), ("mechanism", _MECHANISMS)):
        if given[name] not in words:
            raise JobLensError(f"{path}: {name} is one of {', '.join(words)}")
    if given["security"].startswith("sasl") and not (given["user"] and given["password_file"]):
        raise JobLensError(f"{path}: security = {given['security']} needs user and password_file")
    for name in ("servers", "group", "nodes"):
        if not given[name].strip():
            raise JobLensError(f"{path}: {name} is empty")
    types = {given[f"topic_{word}"]: kind for word, kind in TYPES.items() if given[f"topic_{word}"]}
    if len(types) < sum(bool(given[f"topic_{word}"]) for word in TYPES) or not types:
        raise JobLensError(f"{path}: name topics, each for one type of records")
    return Settings(given, types, tuple(_list(given["nodes"])))


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    """Raises JobLensError."""
    try:
        made = ssl.create_default_context(cafile=given["authority"] or None)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        if given["certificate"]:
            made.load_cert_chain(given["certificate"], given["key"] or None)
    except (ssl.SSLError, OSError) as error:
        raise JobLensError(f"authority, certificate or key can't be used: {printable(str(error), 200)}") from None
    return made


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
