"""gzip at little cost: by ISA-L where it is installed (PyPI's isal), which takes a tenth of zlib's time."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

_library: Any = zlib
_level = 1  # what more effort saves in bytes it costs in CPU several times over
try:
    from isal import isal_zlib
except ImportError:
    pass
else:
    _library, _level = isal_zlib, 2

Error: type[Exception] = _library.error
"""What is no gzip file."""

_GZIP = 31  # window bits: 2^15 bytes, and gzip's head and tail


def gzipped(data: bytes) -> bytes:
    """The same as a gzip file."""
    return gzipped_pieces((data,))


def gzipped_pieces(pieces: Iterable[bytes]) -> bytes:
    """The same of what is made piece by piece meanwhile."""
    packer = _library.compressobj(_level, zlib.DEFLATED, _GZIP)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def unpacker() -> Any:
    """Unpacks one gzip file piece by piece, as zlib.decompressobj does. Raises `Error`."""
    return _library.decompressobj(wbits=_GZIP)
