"""The figures of docs/sizing.md, of joblens size and of joblens doctor are made by one function."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from condor_joblens.cli import main, size
from condor_joblens.cli.terminal import Style
from condor_joblens.common import sizing
from condor_joblens.common.config import Config

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sizing.md").read_text()
UNITS = {"s": 1, "min": 60}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page, without marks of bold."""
    body = PAGE.partition(f"\n{heading}\n")[2].partition("\n|")[2]
    lines = ("|" + body).partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in lines]


def number(text: str) -> float:
    found = re.match(r"[\d,.]+", text)
    assert found, text
    return float(found[0].replace(",", "")) + ("½" in text) / 2


@pytest.mark.parametrize("cells", rows("## Access points"))
def test_the_table_of_access_points_is_what_the_formula_gives(cells: list[str]) -> None:
    running, interval, updates, schedd, shadows, log = cells
    if interval[0].isdigit():
        load = sizing.access_point_load(number(running), number(interval), sizing.SHADOW_INTERVAL)
    else:
        own = sizing.HTCONDORS_STARTER_INTERVAL, sizing.HTCONDORS_SHADOW_INTERVAL
        load = sizing.access_point_load(number(running), *own, with_joblens=False)
    found = load.updates_per_second, 100 * load.schedd_cores, 100 * load.shadow_cores, load.log_bytes_per_hour / 1e6
    for told, value in zip((updates, schedd, shadows, log), found):
        half = 0.5 if "." not in told else 0.05  # it is rounded
        assert value == pytest.approx(number(told), abs=half * 1.001, rel=0.03)


@pytest.mark.parametrize("cells", rows("## Execute nodes"))
def test_the_table_of_execute_nodes_is_what_the_formula_gives(cells: list[str]) -> None:
    slots, age = number(cells[0].split()[-1]), number(cells[1]) * UNITS[cells[1].split()[1]]
    assert sizing.slot_ad_age(int(slots), Config().slot_ad_period) == pytest.approx(age, rel=0.05)


@pytest.mark.parametrize("cells", rows("## Level `io`"))
def test_the_table_of_level_io_is_what_the_formula_gives(cells: list[str]) -> None:
    for cpus, told in zip((8, 64, 256), cells[1:]):
        assert sizing.io_bytes(int(number(cells[0])), cpus) / 1e6 == pytest.approx(number(told), rel=0.05)


@pytest.mark.parametrize("running", [1, 999, 1000, 1001, 12345, 300_000])
def test_with_the_interval_that_suits_the_load_is_never_above_that_of_a_thousand_jobs(running: int) -> None:
    greatest = sizing.access_point_load(sizing.RUNNING_JOBS, sizing.STARTER_INTERVAL, sizing.SHADOW_INTERVAL)
    found = sizing.access_point_load(running, sizing.starter_interval(running), sizing.SHADOW_INTERVAL)
    assert found.updates_per_second <= greatest.updates_per_second
    assert sizing.starter_interval(running) == max(75, -(-75 * running // 1000))


def test_the_snippets_have_the_intervals_of_the_formula() -> None:
    snippets = Path(__file__).resolve().parents[2] / "condor_config.d"
    ep, ap = ((snippets / f"50-joblens-{role}.conf").read_text() for role in ("ep", "ap"))
    assert re.search(rf"\bSTARTER_UPDATE_INTERVAL = {sizing.STARTER_INTERVAL}\n", ep)
    assert re.search(rf"\bSHADOW_QUEUE_UPDATE_INTERVAL = {sizing.SHADOW_INTERVAL}\n", ap)


def test_size_says_what_to_set_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    lines = size.lines(5000, 128, 64, Style(80))
    assert lines[:2] == [
        "An access point with 5,000 running jobs",
        "Set on the execute nodes: STARTER_UPDATE_INTERVAL = 375",
    ]
    assert max(map(len, lines)) <= 80 and any(line.startswith("375  (set this)") for line in lines)
    assert "nothing is to be set" in "\n".join(size.lines(1000, None, 1, Style(80)))
    assert main.main(["size", "--running-jobs", "5000", "--slots", "128", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["StarterUpdateInterval"] == 375 and len(told["Cases"]) == 3
    assert told["SlotAdSeconds"] == sizing.slot_ad_age(128, 60)
