"""Where the Prometheus page is served.

The sink asks, and so does the supervisor of joblens-export, which binds the address and must not load a sink.
"""

from __future__ import annotations

from collections.abc import Mapping

from condor_joblens.common.config_parser import parse
from condor_joblens.common.knob_values import address

SINK = "prometheus"
MACRO = "JOBLENS_SINK_PROMETHEUS_ADDRESS"
DEFAULT = "127.0.0.1:9753"
RETRY_SECONDS = 10.0
"""Between two tries to listen there."""


def page_address(macros: Mapping[str, str]) -> str:
    """HOST:PORT as the sink takes it from these macros; empty if there is no such sink. The exporter logs mistakes."""
    if SINK not in parse(macros)[0].sinks:
        return ""
    given = next((value.strip() for name, value in macros.items() if name.upper() == MACRO), "")
    try:
        return address(given or DEFAULT)
    except ValueError:
        return DEFAULT


def cannot_listen(address: str, error: Exception) -> str:
    """What the log says of an address that can't be listened at."""
    reason = getattr(error, "strerror", None) or str(error)
    return (
        f"{MACRO} = {address} can't be listened at: {reason}; "
        f"choose another, or end what uses it (tried again every {RETRY_SECONDS:g} s)"
    )
