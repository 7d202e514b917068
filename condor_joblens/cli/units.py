"""Numbers as a person reads them. Memory in powers of 1024 (GiB), what flows in powers of 1000 (GB, MB/s)."""

from __future__ import annotations

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def memory(size: float) -> str:
    """Bytes of memory: `1.2 GiB`; below 1 KiB exact."""
    return _scaled(size, 1024, _BINARY)


def volume(size: float) -> str:
    """Bytes read, written, sent or received: `3.4 GB`; below 1 kB exact."""
    return _scaled(size, 1000, _DECIMAL)


def rate(bytes_per_second: float) -> str:
    """`3.4 MB/s`."""
    return volume(bytes_per_second) + "/s"


def _scaled(size: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    # rounded first: 1023.97 MiB is 1.0 GiB, not 1024.0 MiB
    while power + 1 < len(units) and round(size, 1 if power else 0) >= base:
        size /= base
        power += 1
    return f"{size:.1f} {units[power]}" if power else f"{size:.0f} B"


def cores(value: float) -> str:
    """CPU seconds a second: `0.98`, `12.5`, `128`."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def amount(value: float) -> str:
    """A request without needless decimals: `1`, `2.5`."""
    return f"{value:g}"


def count(number: int, one: str, many: str = "") -> str:
    """`1 process`, `12,345 processes`; `many` defaults to `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(part: float, whole: float) -> str:
    """`98 %`."""
    return f"{100 * part / whole:.0f} %"


def duration(seconds: float) -> str:
    """The two largest units: `40 ms`, `0.4 s`, `45 s`, `3 min 5 s`, `3 h 12 min`, `2 d 3 h`."""
    if 0.0005 <= seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def clock(seconds: float) -> str:
    """A run's age in a narrow column: `0:05`, `3:12:05`, `2+03:12`."""
    minutes, second = divmod(max(int(seconds), 0), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}+{hour:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def latency(seconds: float) -> str:
    """A round-trip time: `0.08 ms`, `12.3 ms`, `1.2 s`."""
    milliseconds = 1000 * seconds
    if milliseconds >= 999.5:
        return duration(seconds)
    return f"{milliseconds:.2f} ms" if milliseconds < 0.995 else f"{milliseconds:.1f} ms"
