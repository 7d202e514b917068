"""A job's time line as one SVG file with its script in it, which needs no network and opens in any browser.

Without the script, as in a viewer of pictures, all of it is there but zoom.
"""

from __future__ import annotations

import functools
import json
import time
import zlib
from collections.abc import Iterator
from importlib.resources import files

from condor_joblens.profiles.text import attribute, clean
from condor_joblens.profiles.timeline import CONNECTIONS, FILES, RARE, Bar, Curve, Mark, Process, Thread, Timeline

WIDTH = 1200
LEAST_WIDTH = 0.15
"""Pixels of a call at that width: narrower ones that touch the one before are left out."""

MOST_BARS = 12_000
MOST_DEEP = 20
"""Rows of calls of a thread."""

LONGEST = 200
"""Characters of a text in the picture."""

GUTTER, MARGIN = 170, 10
"""Pixels to the left of the axis, where rows have their names, and to the right of it."""

_TOP, _ROW, _BAR, _PART, _CURVE, _LETTER = 92, 17, 15, 8, 56, 6.62
_CALL_ROW, _CALL = 14, 13
_LEAST_LETTERS = 3
_STYLE = """\
svg { --paper: #fdfdfb; --ink: #1c1c1c; --soft: #5a5a5a; --line: #d8d8d2; --life: #c3d3e6; --curve: #3a6ea5; }
svg { --area: #3a6ea533; --bad: #c0241c; --good: #3a7d44; --link: #0645ad; background: var(--paper); }
@media (prefers-color-scheme: dark) {
svg { --paper: #17191c; --ink: #e6e6e3; --soft: #a3a6aa; --line: #34383d; --life: #37526f; --curve: #7fb2e5; }
svg { --area: #7fb2e533; --bad: #ff7b72; --good: #6fcf7c; --link: #8ab4f8; }
}
text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--ink); }
.paper { fill: var(--paper); }
.title { font-size: 15px; font-weight: bold; }
.said, .tick, .row { fill: var(--soft); }
.part { font-weight: bold; }
.rule { stroke: var(--line); stroke-width: 1; }
.b { cursor: pointer; }
.b text, .m text { pointer-events: none; }
.b:hover rect { stroke: var(--ink); stroke-width: 1; }
.life rect { fill: var(--life); }
.open rect { fill-opacity: 0.55; stroke: var(--soft); stroke-dasharray: 2 2; stroke-width: 0.6; }
.call text { fill: #1c1c1c; }
.unwound rect { stroke: var(--bad); stroke-width: 1.2; }
.m path { fill: var(--curve); stroke: none; }
.m.bad path { fill: var(--bad); }
.m.command path { fill: var(--good); }
.m:hover path { stroke: var(--ink); }
.behind { fill: transparent; }
.curve { fill: var(--area); stroke: var(--curve); stroke-width: 1.2; vector-effect: non-scaling-stroke; }
.hidden { display: none; }
#chosen { fill: var(--link); fill-opacity: 0.18; }
#reset { cursor: pointer; fill: var(--link); text-decoration: underline; }
"""
_SHAPES = {
    "circle": "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z",
    "cross": "M-4,-2.5L-2.5,-4L0,-1.5L2.5,-4L4,-2.5L1.5,0L4,2.5L2.5,4L0,1.5L-2.5,4L-4,2.5L-1.5,0z",
    "diamond": "M0,-4L4,0L0,4L-4,0z",
    "triangle": "M0,-4.5L4.5,3.5L-4.5,3.5z",
    "flag": "M1,-7L-5,-4L0,-1L0,7L1,7z",
}
_SHAPE_OF = {
    "open": "circle", "failed": "cross", "connect": "diamond", "refused": "cross", "signal": "triangle",
    "raised": "triangle", "exec": "flag",
}  # fmt: skip
_LEGEND = (
    ("exec", "command"), ("open", "file"), ("connect", "connection"), ("failed", "failed, refused"),
    ("signal", "signal, exception"),
)  # fmt: skip


def picture(made: Timeline) -> str:
    """The whole file."""
    drawing = _Drawing(made)
    body = list(drawing.all())
    height = drawing.y + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" data-axis={attribute(json.dumps(drawing.axis))}>',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" class="paper"/>',
            *body,
            f'<rect id="chosen" class="hidden" y="{_TOP - 14}" height="{height - _TOP + 14}"/>',
            f"<script><![CDATA[{script_text()}]]></script>",
            "</svg>\n",
        ]
    )


@functools.cache
def script_text() -> str:
    """All of the picture's script."""
    return "\n" + files(__package__).joinpath("timeline.js").read_text("utf-8")


def title(made: Timeline) -> str:
    """`job 12.0 on node01, 2026-01-31 14:05:00.120 to 14:05:31.500, 31.38 s`."""
    begun, ended = (time.localtime(at) for at in (made.begun, made.ended))
    day = "%Y-%m-%d " if begun[:3] != ended[:3] else ""
    since = f"{time.strftime('%Y-%m-%d %H:%M:%S', begun)}.{int(made.begun % 1 * 1000):03}"
    until = f"{time.strftime(f'{day}%H:%M:%S', ended)}.{int(made.ended % 1 * 1000):03}"
    node = f" on {clean(made.node, 40)}" if made.node else ""
    return f"job {clean(made.job or '?', 60)}{node}, {since} to {until}, {seconds_in_words(made.ended - made.begun)}"


def seconds_in_words(seconds: float) -> str:
    """`12.3 us`, `4.51 ms`, `1.25 s`, `3 min 5 s`, `2 h 14 min`."""
    for limit, scale, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (60.0, 1.0, "s")):
        if seconds < limit:
            return f"{seconds * scale:.4g} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def ticks(begun: float, ended: float, most: int) -> list[float]:
    """Round times on the axis, `most` at most. The script does the same."""
    least = (ended - begun) / max(1, most)
    step = next((each for each in STEPS if each >= least), None) or -(-least // 86400) * 86400
    zone = zone_seconds(begun)
    # of a float of today's time the last digit is worth a quarter of a microsecond
    first = -(-(begun + zone) // step) * step - zone
    return [at for at in (first + number * step for number in range(most + 1)) if at <= ended]


STEPS = (
    *(digit * 10.0**power for power in range(-5, 1) for digit in (1, 2, 5)),
    10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0, 86400.0,
)  # fmt: skip


def zone_seconds(when: float) -> int:
    """Of the local time, east of Greenwich."""
    return time.localtime(when).tm_gmtoff


def tick_label(at: float, step: float) -> str:
    """As exact as the step."""
    digits = 0 if step >= 1 else min(6, len(f"{step:.6f}".rstrip("0").partition(".")[2]))
    whole = round(at, digits)
    fraction = f"{whole % 1:.{digits}f}"[1:] if digits else ""
    return time.strftime("%H:%M:%S", time.localtime(whole)) + fraction


class _Drawing:
    """Rows below each other."""

    def __init__(self, made: Timeline) -> None:
        self._made = made
        self.y = _TOP
        self._span = made.ended - made.begun
        self._wide = WIDTH - GUTTER - MARGIN
        self._bars = 0
        self._left_out = 0
        self.axis = {
            "begun": made.begun,
            "seconds": self._span,
            "zone": zone_seconds(made.begun),
            "steps": STEPS,
            "gutter": GUTTER,
            "margin": MARGIN,
            "top": _TOP,
        }

    def all(self) -> Iterator[str]:
        rows = [*self._processes(), *self._curves()]
        yield from self._heading()
        yield from self._axis()
        yield from rows
        yield from self._remarks()

    def _heading(self) -> Iterator[str]:
        yield f'<text x="{MARGIN}" y="20" class="title line">{escaped(clean(title(self._made)))}</text>'
        at = MARGIN
        for kind, words in _LEGEND:
            classes = "m bad" if kind in RARE else "m command" if kind == "exec" else "m"
            yield f'<g class="{classes}" transform="translate({at + 6},36)"><path d="{_SHAPES[_SHAPE_OF[kind]]}"/></g>'
            yield f'<text x="{at + 16}" y="40" class="said">{words}</text>'
            at += 28 + round(len(words) * _LETTER)
        yield f'<text id="details" class="said" x="{MARGIN}" y="60"></text>'
        yield f'<text id="reset" class="hidden" x="{WIDTH - MARGIN}" y="60" text-anchor="end">show all</text>'

    def _axis(self) -> Iterator[str]:
        found = ticks(self._made.begun, self._made.ended, 8)
        step = found[1] - found[0] if len(found) > 1 else 1.0
        yield '<g id="ticks">'
        for at in found:
            x = self._x(at)
            yield f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 12}" y2="{self.y}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{_TOP - 16}" text-anchor="middle">{tick_label(at, step)}</text>'
        yield "</g>"

    def _x(self, at: float) -> float:
        return GUTTER + (at - self._made.begun) * self._wide / self._span

    # -- processes ------------------------------------------------------------------------------------------------

    def _processes(self) -> Iterator[str]:
        for process in self._made.processes:
            yield from self._process(process)
            for thread in process.threads:
                yield from self._thread(process, thread)
            for words, kinds in (("files", FILES), ("connections", CONNECTIONS)):
                found = [mark for mark in process.marks if mark.kind in kinds]
                if found:
                    yield self._name(words, process.depth + 1)
                    found.sort(key=lambda each: each.kind in RARE)  # what is drawn last is on top
                    yield from (self._mark(mark) for mark in found)
                    self.y += _ROW
            self.y += _PART if process.threads or process.marks else 0

    def _process(self, process: Process) -> Iterator[str]:
        who = f"{process.pid} {process.program}" if process.pid else "unknown processes"
        yield self._name(who, process.depth, "part")
        words = process.commands[-1].text if process.commands else process.program
        if process.ending:
            words += f"  [{process.ending}]"
        yield self._bar(process.begun, process.ended, words, _life_hint(process, words), _life_classes(process))
        yield from (self._mark(mark) for mark in process.commands)
        yield from (self._mark(mark) for mark in process.marks if mark.kind not in FILES | CONNECTIONS)
        self.y += _ROW

    def _thread(self, process: Process, thread: Thread) -> Iterator[str]:
        yield self._name("calls" if thread.tid == process.pid else f"thread {thread.tid}", process.depth + 1)
        least = min(bar.depth for bar in thread.bars)
        rows = 0
        begin = self.y
        last: dict[int, float] = {}
        for bar in sorted(thread.bars, key=lambda each: (each.begun, each.depth)):
            row = bar.depth - least
            begun, ended = self._x(bar.begun), self._x(bar.begun + (bar.seconds or 0.0))
            is_narrow = ended - begun < LEAST_WIDTH and begun - last.get(row, -1.0) < LEAST_WIDTH
            if is_narrow or row >= MOST_DEEP or self._bars >= MOST_BARS:
                self._left_out += 1
                continue
            rows = max(rows, row)
            self.y = begin + row * _CALL_ROW
            last[row] = ended
            self._bars += 1
            yield self._call(bar, process.ended)
        self.y = begin + (rows + 1) * _CALL_ROW + _ROW - _CALL_ROW

    def _call(self, bar: Bar, over: float) -> str:
        said = f": {bar.result}" if bar.result else ""
        if bar.is_moment:
            return self._mark(Mark(bar.begun, "raised", f"{bar.words}\n{bar.end}{said}"))
        ended = over if bar.seconds is None else bar.begun + bar.seconds
        took = "its end is not known" if bar.seconds is None else seconds_in_words(bar.seconds)
        hint = f"{bar.words}\n{took}, {bar.end}{said}"
        classes = "call open" if bar.seconds is None else "call unwound" if bar.end == "unwound" else "call"
        return self._bar(bar.begun, ended, bar.name, hint, classes, _colour(bar.name))

    def _name(self, words: str, depth: int, classes: str = "row") -> str:
        x = MARGIN + 8 * min(depth, 6)
        shown = _fitted(clean(words, LONGEST), GUTTER - x)
        hint = f"<title>{escaped(clean(words, LONGEST))}</title>"
        return f'<text x="{x}" y="{self.y + 12}" class="{classes}">{hint}{escaped(shown)}</text>'

    def _bar(self, begun: float, ended: float, words: str, hint: str, classes: str, colour: str = "") -> str:
        begun, ended = max(begun, self._made.begun), min(ended, self._made.ended)
        x, width = self._x(begun), max(0.8, self._x(ended) - self._x(begun))
        shown = clean(words, LONGEST)
        place = f"{begun - self._made.begun:.7f} {max(0.0, ended - begun):.7f}"
        fill, high = (f' fill="{colour}"', _CALL) if colour else ("", _BAR)
        return (
            f'<g class="b {classes}" data-t="{place}" data-n={attribute(shown)}><title>{_lines(hint)}</title>'
            f'<rect x="{x:.2f}" y="{self.y}" width="{width:.2f}" height="{high}" rx="2"{fill}/>'
            f'<text x="{x + 3:.2f}" y="{self.y + high - 3}">{escaped(_fitted(shown, width))}</text></g>'
        )

    def _mark(self, mark: Mark) -> str:
        kind = "bad" if mark.kind in RARE else "command" if mark.kind == "exec" else ""
        shape = _SHAPES[_SHAPE_OF.get(mark.kind, "circle")]
        lower = 13 if mark.kind in RARE else 5  # where there are both, both are seen
        y = self.y + (lower if mark.kind in FILES | CONNECTIONS else 7)
        at = f"translate({self._x(mark.time):.2f},{y})"
        said = "" if mark.kind == "raised" else f"{mark.kind}: "
        return (
            f'<g class="m {kind}" data-t="{mark.time - self._made.begun:.7f}" transform="{at}">'
            f'<title>{_lines(f"{said}{mark.text}")}</title><path d="{shape}"/></g>'
        )

    # -- curves -----------------------------------------------------------------------------------------------------

    def _curves(self) -> Iterator[str]:
        for curve in self._made.curves:
            self.y += _PART
            yield from self._curve(curve)

    def _curve(self, curve: Curve) -> Iterator[str]:
        most = max(value for _, value in curve.points)
        top = most or 1.0
        yield f'<text x="{MARGIN}" y="{self.y + 12}" class="part">{escaped(clean(curve.title, 24))}</text>'
        least = min(value for _, value in curve.points)
        span = f"{number_in_words(least)} to {number_in_words(most)}"
        yield f'<text x="{MARGIN}" y="{self.y + 26}" class="said">{escaped(clean(curve.unit, 24))}</text>'
        yield f'<text x="{MARGIN}" y="{self.y + 40}" class="said">{span}</text>'
        values = attribute(json.dumps(_values(curve, self._made)))
        yield (
            f'<svg class="c" x="{GUTTER}" y="{self.y}" width="{self._wide}" height="{_CURVE}" '
            f'viewBox="0 0 {self._span:.6f} 1" preserveAspectRatio="none" data-v={values} '
            f"data-n={attribute(clean(f'{curve.title}: {{}} {curve.unit}', 60))}>"
            f'<rect class="behind" width="{self._span:.6f}" height="1"/>'
            f'<path class="curve" d="{self._path(curve, top)}"/></svg>'
        )
        yield f'<line class="rule" x1="{GUTTER}" x2="{WIDTH - MARGIN}" y1="{self.y + _CURVE}" y2="{self.y + _CURVE}"/>'
        self.y += _CURVE

    def _path(self, curve: Curve, top: float) -> str:
        """Steps: each value is that of the time since the point before."""
        points = [(at - self._made.begun, 1 - 0.96 * max(0.0, value) / top) for at, value in curve.points]
        before = points[0][0] - (points[1][0] - points[0][0] if len(points) > 1 else self._span)
        steps = [f"M{max(0.0, before):.6f},1"]
        for (at, height), since in zip(points, [max(0.0, before), *(at for at, _ in points)]):
            steps.append(f"L{since:.6f},{height:.4f}L{at:.6f},{height:.4f}")
        return "".join(steps) + f"L{points[-1][0]:.6f},1Z"

    def _remarks(self) -> Iterator[str]:
        said = list(self._made.remarks)
        if self._left_out:
            said.append(
                f"{self._left_out:,} calls are too short to draw, or have more than {MOST_DEEP} others around them"
            )
        for remark in said:
            self.y += _ROW
            yield f'<text x="{MARGIN}" y="{self.y + 12}" class="said line">{escaped(clean(remark, 400))}</text>'
        self.y += _ROW


def _values(curve: Curve, made: Timeline) -> list[list[float]]:
    return [[round(at - made.begun, 3), float(f"{value:.4g}")] for at, value in curve.points]


def number_in_words(value: float) -> str:
    """Four digits at most."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _life_classes(process: Process) -> str:
    return "life" if process.is_begin_known and (process.is_end_known or process.is_alive) else "life open"


def _life_hint(process: Process, words: str) -> str:
    began = "" if process.is_begin_known else ", when it began is not known"
    end = "" if process.is_end_known else ", it goes on" if process.is_alive else ", when it ended is not known"
    lived = seconds_in_words(process.ended - process.begun)
    parent = f", child of {process.parent}" if process.parent else ""
    return f"{words}\nprocess {process.pid}{parent}: {lived}{began}{end}"


def _colour(name: str) -> str:
    digest = zlib.crc32(name.encode("utf-8", "replace")).to_bytes(4, "big")
    return f"hsl({digest[0] * 360 // 256},{45 + digest[1] * 20 // 255}%,{68 + digest[2] * 10 // 255}%)"


def _fitted(text: str, width: float) -> str:
    letters = int((width - 6) / _LETTER)
    return "" if letters < _LEAST_LETTERS else text if len(text) <= letters else text[: letters - 2] + ".."


def _lines(hint: str) -> str:
    """Each line of its own made fit to show."""
    return escaped("\n".join(clean(line, LONGEST) for line in hint.split("\n")[:3]))


def escaped(text: str) -> str:
    """As text in XML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
