"""Numbers as JSON and Prometheus write them, by orjson where it is installed: Python takes ten times as long."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

_encode: Any
try:
    import orjson
except ImportError:
    _encode = None
else:

    def _encode(table: np.ndarray) -> bytes:
        text: bytes = orjson.dumps(table, option=orjson.OPT_SERIALIZE_NUMPY)
        return text


def decimals(table: np.ndarray) -> list[list[bytes]]:
    """The numbers of a table (f8 or i8, shape (n, m)), row by row. What is not finite has a text that means nothing."""
    if not table.size:
        return [[] for _ in table]
    if _encode is None:
        text = json.dumps(table.tolist(), separators=(",", ":")).encode()
    else:
        text = _encode(np.ascontiguousarray(table))
    return [row.split(b",") for row in text[2:-2].split(b"],[")]
