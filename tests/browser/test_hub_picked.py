"""Any metric of the table, picked by keyboard and without scripts: a column, a chart, and two against each other."""

from __future__ import annotations

import time
from typing import Any

from hub_visits import PATIENCE, Hub, hub, job_path, send, visit
from playwright.sync_api import Page, expect

__all__ = ["hub", "visit"]  # fixtures

_INK = """() => [...document.querySelectorAll("#charts canvas")].map((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let colored = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200 && Math.abs(data[at] - data[at + 2]) > 60) colored += 1;
  return colored;
})"""

_ABOVE = """() => [...document.querySelectorAll("#charts .chart")].map((chart) => {
  const canvas = chart.querySelector("canvas"), top = chart.querySelector(".u-over").offsetTop * devicePixelRatio;
  const { width, height } = canvas, data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] > 200 && Math.abs(data[at] - data[at + 2]) > 60) return Math.floor(at / 4 / width) - top;
  return -1;
})"""
"""Of each chart, how many pixels lie between the upper edge and its lines."""


def pick(page: Page, name: str, metric: str, path: str) -> None:
    """In the field of this name, and by the button after it with the keyboard."""
    field = page.locator(f"select[name={name}]")
    field.focus()
    field.select_option(metric)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(path)


def test_a_column_is_picked_without_scripts_and_stays_in_the_address(hub: Hub, visit: Any) -> None:
    send(hub, [1], memory_major_faults=[11, 22, 33, 44])
    one = visit(java_script_enabled=False)
    page = one.log_in("daemon")
    one.open("/jobs?state=all&sort=job")
    pick(page, "column", "Memory.MajorFaults", "**column=Memory.MajorFaults**")
    pick(page, "column", "Cpu.Seconds", "**column=Cpu.Seconds**")
    heads = page.locator("thead th").all_inner_texts()
    assert heads[:4] == ["Health", "Job", "Memory.MajorFaults", "Cpu.Seconds"]
    page.get_by_role("link", name="Memory.MajorFaults", exact=True).click()
    page.wait_for_url("**sort=-Memory.MajorFaults**")
    place = heads.index("Memory.MajorFaults") + 1
    assert page.locator(f"tbody td:nth-child({place})").all_inner_texts() == ["22", "11"]
    page.get_by_role("link", name="without the column Memory.MajorFaults").click()
    expect(page.locator("thead")).not_to_contain_text("MajorFaults")


def test_two_metrics_are_drawn_and_lead_to_the_jobs_that_are_far(hub: Hub, visit: Any) -> None:
    send(hub, [1], memory_major_faults=[11, 22, 33, 44])
    one = visit(java_script_enabled=False)
    page = one.log_in("games")
    one.open("/jobs?state=all&owner=alice")
    page.get_by_role("link", name="Two metrics").click()
    page.wait_for_url("**/scatter?**owner=alice**")
    page.locator("select[name=y]").select_option("Memory.MajorFaults")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**y=Memory.MajorFaults**owner=alice**")
    expect(page.locator("#live")).to_contain_text("3 jobs of which both are known")
    page.get_by_role("link", name="As a table").click()
    page.wait_for_url("**/jobs?**")
    assert page.locator("thead th").all_inner_texts()[2:4] == ["Cpu.RecentCores", "Memory.MajorFaults"]


def test_a_chart_of_any_metric_is_drawn(hub: Hub, visit: Any) -> None:
    for sequence in range(1, 6):
        send(hub, [sequence], memory_major_faults=100 * sequence)
    one = visit()
    page = one.log_in("daemon")
    one.open(job_path(0))
    pick(page, "metric", "Memory.MajorFaults", "**metric=Memory.MajorFaults**")
    expect(page.locator("#charts .chart")).to_have_count(5)
    expect(page.locator("#charts")).to_contain_text("Memory.MajorFaults")
    page.wait_for_function(f"({_INK})().slice(-1)[0] > 100", timeout=PATIENCE)


def test_the_last_of_several_samples_of_a_second_is_in_the_chart(hub: Hub, visit: Any) -> None:
    """A job that ends has its last samples in one second: the page writes seconds."""
    begun = int(time.time()) + 20
    for sequence, (second, faults) in enumerate([(0, 10), (1, 10), (2, 10), (2, 1000)], 11):
        send(hub, [sequence], update_time=begun + second, memory_major_faults=faults)
    one = visit()
    page = one.log_in("daemon")
    one.open(job_path(0) + "?metric=Memory.MajorFaults")
    expect(page.locator("#charts .chart")).to_have_count(5)
    expect(page.locator("#charts[data-points]")).to_have_count(1)
    end = time.monotonic() + PATIENCE / 1000
    while (above := page.evaluate(_ABOVE)[-1]) < 0 and time.monotonic() < end:  # its lines are drawn a frame later
        page.wait_for_timeout(50)
    assert above > 5, "the line ends at the chart's upper edge"
