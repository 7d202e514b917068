"""From the kernel's counters to the columns of the metric table."""

from __future__ import annotations

import numpy as np
import pytest

from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, Metric, MetricKind
from condor_joblens.sample import (
    cgroup_files,
    endpoint_counters,
    kernel_counters,
    memory_growth,
    progress,
    server_counters,
)
from condor_joblens.tracer import map_layout


def nothing(slots: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(slots, map_layout.COUNTERS), np.zeros(slots, map_layout.LIVING), np.zeros(slots, map_layout.LIVING)


def test_every_column_is_in_the_table_and_every_metric_has_a_source() -> None:
    files = {*cgroup_files.read_cpu([]), *cgroup_files.read_slow([])}
    made = {"cpu_recent_cores", "cpu_average_cores"}  # by sample.cpu_rates
    made.add("cpu_idle_seconds")  # by agent.levels.policy_input
    made.update({"peek_first", "peek_second", "peek_third", "peek_fourth"})  # by agent.peeks
    made.update(progress.Progress.columns)
    none = np.zeros(0)
    made.update(memory_growth.columns(np.zeros(0, STATE), np.zeros(0, "i8"), none, none, 1.0, 1.0))
    basic = {metric.column for metric in METRICS if metric.level <= Level.BASIC}
    assert basic == {
        *kernel_counters.columns(*nothing()),
        *files,
        *made,
        *server_counters.COLUMNS,
        *server_counters.MAPPED,
    }


def test_a_field_of_the_kernel_counts_one_metric() -> None:
    """Otherwise the same name in two groups has made a wrong pair: see kernel_counters.counted_by."""
    counted = [*kernel_counters.COUNTS.items(), *endpoint_counters.COLUMNS.items()]
    fields = [field for _, field in counted]
    assert len(fields) == len(set(fields)) and len(dict(counted)) == len(counted)
    other = {"ended_peak_pages", "run_queue_ns", "closed", "rtt_us", "rtt_count", "by_endpoint"}
    other |= {"events_paid_until", "events_declared"}  # the slot's share of process events
    counters = [name for name in map_layout.COUNTERS.names or () if map_layout.COUNTERS[name] == np.dtype("u8")]
    first = counters.index("forked")
    assert set(counters[first:]) - set(fields) - other == set()


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("memory_minor_faults", "minor_faults"),
        ("process_failed", "failed"),
        ("tcp_failed", "connect_failed"),
        ("tcp_sent_bytes", "sent_bytes"),
        ("udp_sent_bytes", "udp_sent_bytes"),
        ("udp_dns_queries", "dns_queries"),
        ("tcp_loopback_sent_bytes", "loopback_sent_bytes"),
    ],
)
def test_a_metric_is_counted_by_the_field_of_its_name(column: str, field: str) -> None:
    assert {**kernel_counters.COUNTS, **endpoint_counters.COLUMNS}[column] == field


def test_a_new_counter_needs_its_metric_and_its_field_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (*METRICS, Metric("Memory", "SoftFaults", MetricKind.COUNTER, "faults", "as an example"))
    monkeypatch.setattr(kernel_counters, "METRICS", table)
    found = kernel_counters.counted_by(
        Level.BASIC, MetricKind.COUNTER, (*(map_layout.COUNTERS.names or ()), "soft_faults")
    )
    assert dict(found.items() - kernel_counters.COUNTS.items()) == {"memory_soft_faults": "soft_faults"}


def test_what_has_ended_and_what_lives_are_added_up() -> None:
    ended, living, connections = nothing(2)
    for where, field in ((ended, 1000), (living, 200), (connections, 30)):
        for name in map_layout.TOTALS:
            where[name][1] = field
    columns = kernel_counters.columns(ended, living, connections)
    for column, field in kernel_counters.COUNTS.items():
        assert columns[column][0] == 0
        assert columns[column][1] == (1230 if field in map_layout.TOTALS else 0)
    assert columns["cpu_run_queue_seconds"][1] == pytest.approx(1200e-9)


def test_a_sum_that_begins_below_zero_comes_out_right() -> None:
    ended, living, connections = nothing()
    ended["call_read_bytes"] = np.uint64(2**64 - 500)  # taken off at the job's exec
    living["call_read_bytes"] = 750
    assert kernel_counters.columns(ended, living, connections)["io_call_read_bytes"][0] == 250


def test_the_peak_is_of_one_process_that_lives_or_has_ended() -> None:
    ended, living, connections = nothing()
    ended["ended_peak_pages"], living["peak_pages"] = 9, 4
    assert (
        kernel_counters.columns(ended, living, connections)["memory_largest_process_peak_bytes"][0]
        == 9 * kernel_counters.PAGE
    )
    living["peak_pages"] = 11
    assert (
        kernel_counters.columns(ended, living, connections)["memory_largest_process_peak_bytes"][0]
        == 11 * kernel_counters.PAGE
    )


def test_the_round_trip_time_is_a_mean_and_absent_without_connections() -> None:
    ended, living, connections = nothing()
    assert np.isnan(kernel_counters.columns(ended, living, connections)["tcp_rtt_seconds"][0])
    ended["rtt_us"], ended["rtt_count"] = 300, 2
    connections["rtt_us"], connections["rtt_count"] = 600, 1
    assert kernel_counters.columns(ended, living, connections)["tcp_rtt_seconds"][0] == pytest.approx(300e-6)


def test_more_closed_than_opened_is_none_open() -> None:
    ended, living, connections = nothing()
    ended["connected"], ended["closed"] = 1, 3  # opened before counting began
    assert kernel_counters.columns(ended, living, connections)["tcp_open"][0] == 0


@pytest.mark.parametrize(
    ("main_start_ns", "before", "left"),
    [(0, 9, 3), (5, 9, 8), (5, -1, 0)],
    ids=["counted", "older than the programs", "never looked at"],
)
def test_what_lives_on_after_the_first_process_is_known_without_a_walk(
    main_start_ns: int, before: int, left: int
) -> None:
    ended, _, _ = nothing()
    ended["main_tgid"], ended["main_start_ns"], ended["forked"], ended["exited"] = 7, main_start_ns, 4, 2
    assert kernel_counters.left(ended, np.array([before])).tolist() == [left]
    ended["exited"] = 5
    assert main_start_ns or kernel_counters.left(ended, np.array([before])).tolist() == [0]
