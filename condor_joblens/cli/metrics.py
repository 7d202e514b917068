"""`joblens metrics`: every number there is."""

from __future__ import annotations

import argparse

from condor_joblens.cli.terminal import Style, style
from condor_joblens.model.metrics import GROUPS, METRICS, Metric, patterns, placeholders

_NARROW = 100
"""Below so many columns a meaning stands under its name, not beside it."""


def run(options: argparse.Namespace) -> int:
    """Prints the table of metrics; exit code 0."""
    if options.json:
        import json

        print(json.dumps([_record(metric) for metric in METRICS], indent=2))
    else:
        print("\n".join(lines(style())))
    return 0


def lines(look: Style) -> list[str]:
    """The table, a group after the other."""
    entries = patterns()
    cells = [(pattern, m.unit, m.kind.value, m.level.name.lower()) for pattern, m in entries.items()]
    headers = ("NAME", "UNIT", "KIND", "LEVEL")
    widths = [max(map(len, column)) for column in zip(headers, *cells)]
    gap = 1 if look.width < _NARROW else 2
    if sum(widths) + gap * len(widths) > look.width + gap:
        widths = [0] * len(widths)  # words alone: columns would be wider

    def prefix(words: tuple[str, ...]) -> str:
        return "".join(word.ljust(width) + " " * gap for word, width in zip(words, widths))

    page = [look.paint(look.fit(prefix(headers) + "MEANING"), "dim")]
    for group in GROUPS:
        page.append(look.paint(group, "bold"))
        for metric, words in zip(entries.values(), cells):
            if metric.group == group:
                page += _entry(prefix(words), metric, look)
        for placeholder, names in placeholders(group).items():
            page += look.wrapped(", ".join(names), f"<{placeholder}> is one of ")
    return page


def _entry(prefix: str, metric: Metric, look: Style) -> list[str]:
    if look.width < _NARROW:
        return [prefix.rstrip(), *look.wrapped(metric.help, "    ")]
    return look.wrapped(metric.help, prefix)


def _record(metric: Metric) -> dict[str, str]:
    return {
        "Name": metric.path,
        "Unit": metric.unit,
        "Kind": metric.kind.value,
        "Level": metric.level.name.lower(),
        "Prometheus": metric.exposed + (f'{{{metric.label[0]}="{metric.label[1]}"}}' if metric.label else ""),
        "Help": metric.help,
    }
