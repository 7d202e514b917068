"""Writes docs/metrics.md, docs/configuration.md, docs/schema/ and the completion of bash from the tables in the code.

Run as `python -m condor_joblens.cli.reference docs/`; a test fails where the pages are not what the tables make.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from condor_joblens.cli.completion import script
from condor_joblens.common.config import KNOBS
from condor_joblens.model import servers
from condor_joblens.model.classes import FILESYSTEMS, SERVERS, SYSCALLS
from condor_joblens.model.endpoints import LISTED, MEANINGS
from condor_joblens.model.metrics import FIELDS, GROUPS, SCHEMA, Field, Metric, patterns, placeholders
from condor_joblens.publish import server_ads
from condor_joblens.publish.attribute import ATTRIBUTE
from condor_joblens.publish.classad import LIMIT, LIMIT_IO
from condor_joblens.publish.endpoint_ads import MOST
from condor_joblens.sinks.prometheus_page import INFO, LABELS
from condor_joblens.sinks.registry import SHIPPED, knobs, load
from condor_joblens.sinks.schema import schemas

_MADE = "<!-- Made by `python -m condor_joblens.cli.reference docs/` from the tables in the code. -->"

COMPLETION = "completion/joblens.bash"


def pages() -> dict[str, str]:
    """The generated pages: name of the file -> its text."""
    made = {"metrics.md": metrics_page(), "configuration.md": configuration_page(), COMPLETION: script()}
    for kind, schema in schemas().items():
        made[f"schema/{kind.value}.json"] = json.dumps(schema, indent=1) + "\n"
    return made


def metrics_page() -> str:
    """Everything that is said about a run of a job."""
    run = _table(("Attribute", "Column", "Meaning"), map(_field_row, FIELDS))
    groups = "\n".join(map(_group, GROUPS))
    return f"""{_MADE}

# What is measured

Look a number up: its unit, its meaning, its level, and its name on the Prometheus page.

All numbers are in one nested ClassAd, `{ATTRIBUTE}`. It is in the ad of a running job (`condor_q`),
of an ended job (`condor_history`) and of a slot (`condor_status`):

    condor_q -af ClusterId ProcId JobLensUsage.Cpu.RecentCores JobLensUsage.Memory.ResidentBytes
    condor_history -af JobLensUsage.Final JobLensUsage.Io.CallReadBytes 123.0

- A number that this kernel or this source can't give is **absent**, never 0.
- A **counter** never goes backwards within a run; a **gauge** is as it was at `UpdateTime`; a
  **peak** is the greatest value so far.
- A class of calls or file systems that is not in use, and an error that has not occurred, is not in
  the ad.
- The ad has at most {LIMIT} bytes, {LIMIT_IO} from level io on. A longer one is shortened and says
  `Shortened = true`. First the smallest classes go, then the ends of texts. The node has everything:
  `joblens job`, the Prometheus page, and the records of all sinks.
- A *run* is one start of a job: an evicted job's rerun is a new run, and begins at 0.
- Times are epoch seconds. Durations are rounded to microseconds, cores to three decimals.

On the Prometheus page every job's series has the labels {_names(LABELS)}.
`joblens_job_info` adds {_names(INFO)}.

## The run

This is schema {SCHEMA}. A column without an attribute is in the shared memory alone.

{run}
{groups}
## Endpoint

From level io on, this is a list of the remote endpoints with most bytes. The ad has the first
{MOST}. Shared memory and `joblens job --json` have {LISTED}, and a last entry without an address: all
that the others lack. Together they are always exactly `Tcp`. The numbers of a listed endpoint are
counters while it is listed. Those of the last entry may fall when an endpoint enters the list.

{_table(("Name", "Meaning"), [(f"`{name}`", meaning) for name, meaning in MEANINGS.items()])}
## Servers

This is a list of the file servers of which the run asked most: mounts of FUSE, and servers of NFS.
The ad has the first {server_ads.MOST}. Shared memory and `joblens job --json` have {servers.LISTED}, and a last entry
without a name: all that the others lack. Together they are always `Server`. As of endpoints, the
last entry may fall.

What processes outside of jobs asked, and what nobody can be blamed for, is in no row. It is in the
families `joblens_server_unattributed_...` of the Prometheus page, by server. With all rows of the
node it is what the servers themselves have counted. Jobs at level `off` are counted and not shown.

{_table(("Name", "Meaning"), [(f"`{name}`", meaning) for name, meaning in servers.MEANINGS.items()])}"""


def _group(group: str) -> str:
    head = ("Attribute", "Kind", "Unit", "Level", "Meaning", "Prometheus")
    table = _table(head, [_metric_row(m) for m in patterns().values() if m.group == group])
    classes = "".join(_placeholder(group, *entry) for entry in placeholders(group).items())
    return f"## {group}\n\n{table}{classes}\n"


def _placeholder(group: str, placeholder: str, names: Sequence[str]) -> str:
    meanings = {"Syscall": SYSCALLS, "Fs": FILESYSTEMS, "Server": SERVERS}.get(group)
    if meanings is None:
        return f"\n`<{placeholder}>` is one of {_names(names)}.\n"
    return "\n" + _table((f"`<{placeholder}>`", "What is in it"), [(f"`{name}`", meanings[name]) for name in names])


def _field_row(field: Field) -> Sequence[str]:
    return f"`{field.path}`" if field.path else "", f"`{field.name}`", field.help


def _metric_row(metric: Metric) -> Sequence[str]:
    family = metric.exposed
    if metric.label:
        family += "{" + metric.label[0] + "}"
    level = metric.level.name.lower()
    return f"`{metric.pattern}`", metric.kind.value, metric.unit, level, metric.help, f"`{family}`"


def configuration_page() -> str:
    """Every knob."""
    knobs = ((f"`{k.name}`", f"`{k.default}`" if k.default else "none", k.unit, k.help, k.taken) for k in KNOBS)
    return f"""{_MADE}

# Configuration

Look a knob up, with its default and unit. Knobs are HTCondor macros on the execute node; there is no
other configuration file.

    condor_config_val JOBLENS_PERIOD     # what HTCondor has been told
    joblens config                       # every knob, the value in force, and where it comes from

A wrong value or an unknown name costs one line in the log, and the default is used. `joblens doctor`
shows both, and so do the slots' ads: `condor_status -af Machine JobLensNote`.

{_table(("Knob", "Default", "Unit", "What it is", "A new value is taken at"), knobs)}
## Sinks

A sink is configured by its own macros, `JOBLENS_SINK_<NAME>_*`. It runs if `JOBLENS_SINKS` names it.
See [sinks.md](sinks.md).

{_table(("Knob", "Default", "Unit", "What it is"), _sink_knobs())}
The snippets `50-joblens-ep.conf` and `50-joblens-ap.conf` set knobs of HTCondor itself, each with its reason.
"""


def _sink_knobs() -> Iterable[Sequence[str]]:
    for name in SHIPPED:
        for knob in knobs(name, load(name)):
            yield f"`{knob.name}`", f"`{knob.default}`" if knob.default else "", knob.unit, knob.help


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: list[str]) -> int:
    """Writes the pages into the folder that is the only argument."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m condor_joblens.cli.reference FOLDER", file=sys.stderr)
        return 2
    for name, text in pages().items():
        page = Path(arguments[0], name)
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
