"""Which sinks there are, and what the configuration says to each."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from condor_joblens.common.config import Knob
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import PREFIX, RecordKind, Sink, SinkKnob, macro_of
from condor_joblens.sinks.selection import knobs_of

GROUP = "condor_joblens.sinks"
"""The entry point group by which other packages bring sinks."""

SHIPPED: dict[str, str] = {
    "prometheus": "condor_joblens.sinks.prometheus:PrometheusSink",
    "file": "condor_joblens.sinks.file:FileSink",
    "prmon": "condor_joblens.sinks.prmon:PrmonSink",
    "kafka": "condor_joblens.sinks.kafka:KafkaSink",
    "opensearch": "condor_joblens.sinks.opensearch:OpenSearchSink",
    "otlp": "condor_joblens.sinks.otlp:OtlpSink",
    "hub": "condor_joblens.sinks.hub:HubSink",
}
"""Our own: name -> module:class."""

_MACRO = re.compile(PREFIX + r"([A-Z0-9]+)_([A-Z0-9_]+)$")


@dataclass(frozen=True)
class SinkConfig:
    """A sink that JOBLENS_SINKS names, and its settings."""

    name: str
    sink: type[Sink]
    settings: Mapping[str, Any]

    @functools.cached_property
    def takes(self) -> frozenset[RecordKind]:
        """The kinds of records that it wants."""
        return frozenset(self.sink.wanted(self.settings))

    @property
    def listens(self) -> frozenset[str]:
        """The addresses at which it wants to be found."""
        knobs = (knob for knob in self.sink.knobs if knob.listens)
        return frozenset(str(self.settings[knob.name.lower()]) for knob in knobs)


def names() -> list[str]:
    """Every sink that can be named on this machine."""
    return sorted({*SHIPPED, *(entry.name for entry in _entries())})


def load(name: str) -> type[Sink]:
    """The class of a sink. Raises JobLensError where there is none, or its package is not there or broken."""
    try:
        if name in SHIPPED:
            module, _, attribute = SHIPPED[name].partition(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            found = next(entry for entry in _entries() if entry.name == name).load()
    except StopIteration:
        near = difflib.get_close_matches(name, names(), 1, 0.6)
        remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(names())}"
        raise JobLensError(f"JOBLENS_SINKS: there is no sink {printable(name)}: {remedy}") from None
    except ImportError as error:
        extra = f": make install EXTRAS={name}" if name in SHIPPED else ""
        raise JobLensError(
            f"JOBLENS_SINKS: the sink {name} lacks {printable(error.name or str(error))}{extra}"
        ) from None
    except BaseException as error:  # a stranger's module can raise anything, and even want to end the process
        said = printable(f"{type(error).__name__}: {error}", 200)
        raise JobLensError(f"JOBLENS_SINKS: the sink {name} can't be loaded: {said}") from None
    if not (isinstance(found, type) and issubclass(found, Sink)):
        raise JobLensError(
            f"JOBLENS_SINKS: the sink {name} is no subclass of condor_joblens.sinks.Sink: see docs/sinks.md"
        )
    return found


def configure(wanted: Iterable[str], macros: Mapping[str, str]) -> tuple[list[SinkConfig], list[str]]:
    """The sinks that are wanted, as `macros` (name -> value) set them up, and a line for each thing that is wrong.

    A sink that lacks something is left out; the others are not touched by that. A macro of a sink that is not wanted is
    ignored, but a macro of a sink that does not exist is a mistake.
    """
    configs: list[SinkConfig] = []
    problems: list[str] = []
    taken: dict[str, str] = {}
    wanted = list(dict.fromkeys(wanted))
    for name in wanted:
        try:
            sink = load(name)
        except JobLensError as error:
            problems.append(str(error))
            continue
        settings, wrong = settings_of(name, sink, macros)
        problems += wrong
        if settings is None:
            continue
        found = SinkConfig(name, sink, settings)
        clash = next((address for address in sorted(found.listens) if address in taken), None)
        if clash:
            problems.append(
                f"the sinks {taken[clash]} and {name} both want {clash}: {name} is left out; give it another"
            )
            continue
        taken.update(dict.fromkeys(found.listens, name))
        configs.append(found)
    return configs, [*problems, *_of_no_sink(macros)]


def wrong_of_unwanted(wanted: Iterable[str], macros: Mapping[str, str]) -> list[str]:
    """A line for each knob that is wrong of one of our sinks that is not wanted; what it lacks is no mistake yet.

    One whose library is missing can't be asked.
    """
    given = [name for name, value in _upper(macros).items() if value.strip()]
    problems: list[str] = []
    for name in sorted(set(SHIPPED).difference(wanted)):
        if not any(macro.startswith(macro_name(name, "")) for macro in given):
            continue
        with contextlib.suppress(JobLensError):
            _, found = settings_of(name, load(name), macros)
            problems += [line for line in found if not line.startswith(_LACKS.format(name))]
    return problems


_LACKS = "the sink {} needs "


def settings_of(name: str, sink: type[Sink], macros: Mapping[str, str]) -> tuple[Mapping[str, Any] | None, list[str]]:
    """A sink's settings, None where one is missing; and a line for each that is wrong, whose default then stands."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    given = {upper: value.strip() for upper, value in _upper(macros).items() if value.strip()}
    complete = True
    for knob in knobs_of(sink):
        macro = macro_name(name, knob)
        default = None if knob.default is None else knob.parse(knob.default)
        values[knob.name.lower()] = default
        if macro in given:
            try:
                values[knob.name.lower()] = knob.parse(given[macro])
            except ValueError as error:
                stands = "the sink is left out" if knob.default is None else f"the default {knob.default} is used"
                problems.append(
                    f"{macro} = {printable(given[macro])} is not {error}: {stands}; correct it and run condor_reconfig"
                )
                complete = complete and knob.default is not None
        elif knob.default is None:
            problems.append(f"{_LACKS.format(name)}{macro} ({knob.help}): it is left out")
            complete = False
    known = [macro_name(name, knob) for knob in knobs_of(sink)]
    mine = macro_name(name, "")
    for macro in given:
        if macro.startswith(mine) and macro not in known:
            near = difflib.get_close_matches(macro, known, 1, 0.6)
            remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}" if known else "it has none"
            problems.append(f"{printable(macro)} is no knob of the sink {name} and has no effect: {remedy}")
    return (values if complete else None), problems


def macro_name(sink: str, knob: SinkKnob | str) -> str:
    """JOBLENS_SINK_KAFKA_SERVERS."""
    return macro_of(sink, knob if isinstance(knob, str) else knob.name)


def knobs(name: str, sink: type[Sink]) -> list[Knob]:
    """A sink's knobs as those of the daemons, for who lists them."""
    return [
        Knob(macro_name(name, knob), "", knob.default or "", knob.parse, knob.unit, knob.help, "condor_reconfig")
        for knob in knobs_of(sink)
    ]


def _of_no_sink(macros: Mapping[str, str]) -> list[str]:
    known = names()
    problems = []
    for macro in sorted(_upper(macros)):
        found = _MACRO.match(macro)
        if found and not any(macro.startswith(macro_name(name, "")) for name in known):
            near = difflib.get_close_matches(found[1].lower(), known, 1, 0.6)
            remedy = f"did you mean {macro_name(near[0], found[2])}?" if near else f"there are {', '.join(known)}"
            problems.append(f"{printable(macro)} is of no sink and has no effect: {remedy}")
    return problems


def _upper(macros: Mapping[str, str]) -> dict[str, str]:
    return {name.upper(): value for name, value in macros.items()}


def _entries() -> list[metadata.EntryPoint]:
    found: Any = metadata.entry_points()
    # Python 3.9 gives a dictionary
    group = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())
    return list(group)
