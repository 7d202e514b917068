"""`joblens config`: every knob, its value, where that comes from, and what is wrong with it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common import condor_config, config, config_parser
from condor_joblens.common.condor_config import Macro
from condor_joblens.common.config import Knob
from condor_joblens.common.errors import JobLensError, printable

_DEFAULT = "default"


@dataclass(frozen=True)
class Setting:
    """A knob with the value in force."""

    knob: Knob
    value: str
    source: str


def run(options: argparse.Namespace) -> int:
    """Prints the knobs; exit code 1 where something is wrong with them, or HTCondor can't be asked."""
    found: dict[str, Macro] = {}
    problems = []
    try:
        found = condor_config.read_with_sources()
    except JobLensError as error:
        problems.append(f"{error} These are the defaults.")
    # they bring numpy along
    from condor_joblens.sinks.registry import configure
    from condor_joblens.sinks.registry import knobs as sink_knobs

    values = condor_config.values(found)
    parsed, wrong = config_parser.parse(values)
    configs, more = configure(parsed.sinks, values)
    problems += [*wrong, *more]
    knobs = [*config.KNOBS, *(knob for sink in configs for knob in sink_knobs(sink.name, sink.sink))]
    if options.json:
        print(_json(settings(found, knobs), problems))
    else:
        print("\n".join(lines(settings(found, knobs), problems, style())))
    return 1 if problems else 0


def settings(found: Mapping[str, Macro], knobs: Sequence[Knob] = config.KNOBS) -> list[Setting]:
    """Every knob with its value in force, from the macros by their names in upper case."""
    return [_setting(knob, found.get(knob.name)) for knob in knobs]


def _setting(knob: Knob, macro: Macro | None) -> Setting:
    if macro is None or not macro.value:
        return Setting(knob, knob.default, _DEFAULT)
    try:
        knob.parse(macro.value)
    except ValueError:
        return Setting(knob, knob.default, _DEFAULT)  # config_parser says why
    return Setting(knob, macro.value, macro.source)


def lines(found: list[Setting], problems: list[str], look: Style) -> list[str]:
    """What `config` prints."""
    rows = [(s.knob.name, printable(s.source, 200), _value(s)) for s in found]
    body = table(("KNOB", "FROM", "VALUE"), rows, "KNOB FROM VALUE")
    said = [line for problem in problems for line in look.wrapped(problem, "! ", "  ")]
    return [
        look.paint(body[0], "dim"),
        *body[1:],
        *([""] if said else []),
        *(look.paint(line, "yellow") for line in said),
    ]


def _value(setting: Setting) -> str:
    notes = [setting.knob.unit]
    if setting.value != setting.knob.default:
        notes.append(f"default {setting.knob.default}")
    return f"{printable(setting.value, 200)} ({'; '.join(notes)})"


def _json(found: list[Setting], problems: list[str]) -> str:
    import json

    knobs = [
        {
            "Name": s.knob.name,
            "Value": s.value,
            "Default": s.knob.default,
            "Unit": s.knob.unit,
            "From": s.source,
            "Taken": s.knob.taken,
            "Help": s.knob.help,
        }
        for s in found
    ]
    return json.dumps({"Knobs": knobs, "Problems": problems}, indent=2)
