"""`joblens size`: which intervals suit a pool, and what JobLens then costs its machines. See docs/sizing.md."""

from __future__ import annotations

import argparse
from typing import Any

from condor_joblens.cli import units
from condor_joblens.cli.status import below_headers
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common import sizing
from condor_joblens.common.config import Config
from condor_joblens.common.sizing import AccessPointLoad, access_point_load

HEADERS = ("STARTER_UPDATE_INTERVAL", "UPDATES/s", "SCHEDD", "SHADOWS", "QUEUE LOG", "")
LEFT = "STARTER_UPDATE_INTERVAL"


def run(options: argparse.Namespace) -> int:
    """Prints the advice; exit code 0."""
    found = record(options.running_jobs, options.slots, options.cpus)
    if options.json:
        import json

        print(json.dumps(found, indent=2))
    else:
        print("\n".join(lines(options.running_jobs, options.slots, options.cpus, style())))
    return 0


def _cases(running: int) -> list[tuple[int, AccessPointLoad, str]]:
    """Interval, load and whose it is: HTCondor's own, our snippet's, and the one to set where that is another."""
    suits = sizing.starter_interval(running)
    own, ours = sizing.HTCONDORS_STARTER_INTERVAL, sizing.STARTER_INTERVAL
    cases = [
        (own, access_point_load(running, own, sizing.HTCONDORS_SHADOW_INTERVAL, with_joblens=False), "without JobLens"),
        (ours, access_point_load(running, ours, sizing.SHADOW_INTERVAL), "as shipped"),
    ]
    if suits != ours:
        cases.append((suits, access_point_load(running, suits, sizing.SHADOW_INTERVAL), "set this"))
    return cases


def lines(running: int, slots: int | None, cpus: int, look: Style) -> list[str]:
    """What `size` prints for an access point, and for an execute node of so many slots if `slots` is given."""
    suits = sizing.starter_interval(running)
    title = f"An access point with {units.count(running, 'running job')}"
    if suits == sizing.STARTER_INTERVAL:
        advice = "The intervals of the snippets suit it: nothing is to be set."
    else:
        advice = f"Set on the execute nodes: STARTER_UPDATE_INTERVAL = {suits}"
    page = [look.paint(look.fit(title), "bold"), *look.wrapped(advice)]
    body = table(HEADERS, [_cells(*case) for case in _cases(running)], LEFT, look.width)
    page += ["", *below_headers(body, look), ""]
    oldest = units.duration(suits + sizing.SHADOW_INTERVAL)
    page += look.wrapped(
        f"A number in condor_q is then {oldest} older than in the job's ad at most. The log of the queue grows for "
        "eight hours (QUEUE_CLEAN_INTERVAL): its disk needs that much room."
    )
    return page + (["", *_node(slots, cpus, look)] if slots else [])


def _cells(interval: int, load: AccessPointLoad, whose: str) -> tuple[str, ...]:
    return (
        f"{interval}  ({whose})", f"{load.updates_per_second:.1f}", f"{100 * load.schedd_cores:.1f} %",
        f"{100 * load.shadow_cores:.1f} %", f"{units.volume(load.log_bytes_per_hour)}/h", "",
    )  # fmt: skip


def _node(slots: int, cpus: int, look: Style) -> list[str]:
    config = Config()
    age = units.duration(sizing.slot_ad_age(slots, config.slot_ad_period))
    kernel = units.volume(sizing.io_bytes(config.max_jobs_io, cpus))
    return [
        look.paint(
            look.fit(f"An execute node with {units.count(slots, 'slot')} and {units.count(cpus, 'CPU')}"), "bold"
        ),
        *look.wrapped(f"condor_status: a slot's ad is refreshed every {age} at the soonest"),
        *look.wrapped(
            f"level io: {kernel} of the kernel's memory, for {config.max_jobs_io} jobs (JOBLENS_MAX_JOBS_IO)"
        ),
    ]


def record(running: int, slots: int | None, cpus: int) -> dict[str, Any]:
    """The same for programs: seconds, cores, bytes."""
    cases = [
        {"StarterUpdateInterval": interval, "Case": whose, "UpdatesPerSecond": load.updates_per_second,
         "ScheddCores": load.schedd_cores, "ShadowCores": load.shadow_cores,
         "QueueLogBytesPerHour": load.log_bytes_per_hour}
        for interval, load, whose in _cases(running)
    ]  # fmt: skip
    found: dict[str, Any] = {
        "RunningJobs": running, "StarterUpdateInterval": sizing.starter_interval(running), "Cases": cases,
    }  # fmt: skip
    if slots:
        config = Config()
        found["SlotAdSeconds"] = sizing.slot_ad_age(slots, config.slot_ad_period)
        found["KernelBytesOfIo"] = sizing.io_bytes(config.max_jobs_io, cpus)
    return found
