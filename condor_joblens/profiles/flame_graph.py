"""Flame graphs: one SVG file with its script in it, which needs no network and opens in any browser.

The callers are on top. Without the script, as in a viewer of pictures, all of it is there but zoom and search.
"""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Iterator
from importlib.resources import files
from typing import Optional

from condor_joblens.profiles import unseen
from condor_joblens.profiles.profile import Kind, Profile, View
from condor_joblens.profiles.text import attribute, clean
from condor_joblens.profiles.tree import Node, Placed, placed, tree

WIDTH = 1200
LEAST_WIDTH = 0.4
"""Pixels of a function at that width: narrower ones are left out."""

MOST_NODES = 20_000
LONGEST = 300
"""Characters of a function in the picture, which is to stay small; `hot` shows more of it."""

_MARGIN, _ROW, _TOP, _FOOT = 10, 17, 98, 26
_LETTER = 6.62  # pixels of a letter of 11 px
_HUES = {Kind.NATIVE: (28, 30, 88), Kind.PYTHON: (205, 40, 70), Kind.KERNEL: (280, 24, 42)}
"""Of each kind: the hue, how far functions' hues differ, and the saturation."""

_WORDS = {Kind.NATIVE: "C, C++, Rust ..", Kind.PYTHON: "Python", Kind.KERNEL: "kernel"}

_STYLE = """\
text { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1c1c1c; }
.title { font-size: 15px; font-weight: bold; }
.said { fill: #555; }
.f { cursor: pointer; }
.f text { pointer-events: none; }
.f:hover rect { stroke: #000; stroke-width: 1; }
.above { opacity: 0.45; }
.hidden { display: none; }
.searched .f rect { opacity: 0.25; }
.searched .f.hit rect { opacity: 1; fill: #f48ae4; }
#reset { cursor: pointer; fill: #0645ad; text-decoration: underline; }
#search { box-sizing: border-box; width: 100%; height: 24px; font: 12px sans-serif; padding: 2px 6px; }
"""


def flame_graph(profile: Profile, other: Optional[Profile] = None, most: int = MOST_NODES) -> str:
    """The picture; if another profile is given, colours say where more or less time went than in that.

    It has `most` functions in their places at most, of the rows from the top.
    """
    root = tree(profile, other)
    least = max(1.0, root.total * LEAST_WIDTH / (WIDTH - 2 * _MARGIN))
    found, left_out = placed(root, least, most)
    height = _TOP + _ROW * (max(each.row for each in found) + 1) + _FOOT
    script = script_text()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fdfdfb"/>',
        *_heading(profile, other, root, left_out),
        *(_node(each, root, WIDTH - 2 * _MARGIN, profile, is_compared=other is not None) for each in found),
        f"<script><![CDATA[{script}]]></script>",
        "</svg>\n",
    ]
    return "\n".join(parts)


@functools.cache
def script_text() -> str:
    """All of the picture's script. It is read once: later the process may open no file."""
    return "\n" + files(__package__).joinpath("flame_graph.js").read_text("utf-8")


def title(profile: Profile) -> str:
    """`job 12.0 on node01, on the CPU, 2026-01-31 14:05:00 to 14:35:00`."""
    begun, ended = time.localtime(profile.begun), time.localtime(profile.ended)
    day = "%Y-%m-%d " if begun[:3] != ended[:3] else ""
    until = time.strftime(f"{day}%H:%M:%S", ended)
    many = "jobs" if " " in profile.job else "job"
    node = f" on {clean(profile.node, 40)}" if profile.node else ""
    since = time.strftime("%Y-%m-%d %H:%M:%S", begun)
    return f"{many} {clean(profile.job or '?', 60)}{node}, {profile.view.value}, {since} to {until}"


def counts(profile: Profile) -> str:
    """`1,200 samples at 99 Hz; 3 lost; 10 with a guessed stack ...`; of what waited `12.3 s in 40 waits ...`.

    When nobody looked comes first. Of several jobs, others may have been seen then. Then comes what stacks lack on the
    kernel of a node.
    """
    times = unseen.in_words(profile.unseen, profile.begun, profile.ended)
    of_some = "some jobs " if times and " " in profile.job else ""
    return "; ".join(filter(None, (f"{of_some}{times}", profile.limits, _counts(profile))))


def _counts(profile: Profile) -> str:
    if profile.view is not View.ON_CPU:
        what = "" if profile.view is View.OFF_CPU else "on the CPU and "
        said = [
            f"{profile.amount(profile.samples)} {what}in {profile.waits:,} waits of 1 ms or more that have ended",
            f"{profile.taken:,} of them with a stack",
            f"{profile.amount(profile.lost)} without a stack",
            f"{profile.amount(profile.guessed)} with a guessed stack",
            f"{profile.amount(profile.broken)} with callers missing",
            *([f"{profile.amount(profile.unplaced)} in files without a place"] if profile.unplaced else []),
            *([f"{profile.amount(profile.not_looked_at)} of processes not looked at"] if profile.not_looked_at else []),
            "page faults left out",
        ]
        return "; ".join(said)
    unplaced = f"; {profile.unplaced:,} in files without a place" if profile.unplaced else ""
    if profile.not_looked_at:
        unplaced += f"; {profile.not_looked_at:,} of processes not looked at"
    return (
        f"{profile.samples:,} samples at {profile.hz:g} Hz; {profile.lost:,} lost; {profile.guessed:,} with a guessed "
        f"stack; {profile.broken:,} with callers missing; {profile.not_ours:,} not looked at (not the owner's)"
        f"{unplaced}"
    )


def _heading(profile: Profile, other: Optional[Profile], root: Node, left_out: int) -> Iterator[str]:
    yield _text(20, title(profile), "title")
    said = counts(profile)
    if left_out:
        said += f"; {left_out:,} places too narrow to draw"
    yield _text(38, said, "said")
    if other is None:
        at = _MARGIN
        for kind, word in _WORDS.items():
            yield f'<rect x="{at}" y="52" width="11" height="11" fill="{_colour(word, kind)}"/>'
            yield f'<text x="{at + 16}" y="62" class="said">{word}</text>'
            at += 40 + round(len(word) * _LETTER)
    else:
        yield _text(62, f"red: a larger share here, blue: a smaller one; against {title(other)}", "said beside")
    yield f'<text id="found" x="{WIDTH - _MARGIN}" y="88" text-anchor="end"></text>'
    yield f'<text id="details" x="{_MARGIN}" y="88"></text>'
    yield f'<text id="reset" class="hidden" x="{WIDTH - _MARGIN - 230}" y="88">show all</text>'


def _text(y: int, text: str, kind: str) -> str:
    return f'<text x="{_MARGIN}" y="{y}" class="{kind} line">{_escaped(clean(text))}</text>'


def _node(each: Placed, root: Node, wide: int, profile: Profile, *, is_compared: bool) -> str:
    node, total = each.node, max(1, root.total)
    x, width = _MARGIN + each.start * wide / total, node.total * wide / total
    y = _TOP + each.row * _ROW
    name = clean(node.name, LONGEST)
    colour = _difference(node, root) if is_compared else _colour(node.name, node.kind)
    letters = int((width - 6) / _LETTER)
    shown = "" if letters < 3 else name if len(name) <= letters else name[: letters - 2] + ".."
    return (
        f'<g class="f" data-p="{each.row} {each.start} {node.total}" data-n={attribute(name)}>'
        f"<title>{_escaped(_hint(node, root, name, profile, is_compared))}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{max(0.3, width - 0.6):.2f}" height="{_ROW - 1}" rx="2" fill="{colour}"/>'
        f'<text x="{x + 3:.2f}" y="{y + 12}">{_escaped(shown)}</text></g>'
    )


def _hint(node: Node, root: Node, name: str, profile: Profile, is_compared: bool) -> str:
    file = f"\n{clean(node.file, LONGEST)}" if node.file else ""
    share = f"{profile.amount(node.total)}, {100 * node.total / max(1, root.total):.2f} %"
    other = f" (of the other {100 * node.other / max(1, root.other):.2f} %)" if is_compared else ""
    return f"{name}{file}\n{share}{other}"


def _colour(name: str, kind: Kind) -> str:
    if kind is Kind.GROUP:
        return "#d6d6d2"
    hue, spread, saturation = _HUES[kind]
    digest = zlib.crc32(name.encode("utf-8", "replace")).to_bytes(4, "big")  # hashlib would load all of OpenSSL
    return f"hsl({hue - spread // 2 + digest[0] * spread // 255},{saturation}%,{64 + digest[1] * 12 // 255}%)"


def _difference(node: Node, root: Node) -> str:
    here, there = node.total / max(1, root.total), node.other / max(1, root.other)
    change = (here - there) / max(here, there, 1e-9)
    # a function of which nothing is left is as blue as a new one is red
    return f"hsl({4 if change > 0 else 214},{round(85 * abs(change))}%,{92 - round(30 * abs(change))}%)"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
