"""The endpoints of a run in its ad: the greatest three, as both of HTCondor's parsers read them."""

from __future__ import annotations

import ipaddress
from typing import Any

import classad2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.model import metrics
from condor_joblens.model.endpoints import ENDPOINT, LISTED, MEANINGS, NUMBERS, Scope, where
from condor_joblens.publish import classad, endpoint_ads
from condor_joblens.publish.shortening import ENDPOINT as ENDPOINTS
from condor_joblens.publish.shortening import shorten

addresses = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda number: b"\0" * 10 + b"\xff\xff" + number.to_bytes(4, "big")),
    st.integers(2**96, 2**128 - 1).map(lambda number: number.to_bytes(16, "big")),
)


@st.composite
def listings(draw: Any) -> np.ndarray:
    listing = np.zeros(LISTED + 1, ENDPOINT)
    count = draw(st.integers(0, LISTED))
    for entry in listing[:count]:
        entry["scope"] = draw(st.sampled_from([Scope.OUTSIDE, Scope.LOOPBACK]))
        entry["name"] = draw(st.one_of(st.just(b""), st.text(max_size=32).map(lambda text: text.encode()[:32])))
        entry["address"], entry["port"] = np.void(draw(addresses)), draw(st.integers(0, 65535))
        entry["rtt_seconds"] = draw(st.one_of(st.just(float("nan")), st.floats(0, 100, width=32)))
        for name in NUMBERS:
            entry[name] = draw(st.integers(0, np.iinfo(ENDPOINT[name]).max))
    listing["scope"][LISTED] = Scope.REST
    return listing


def row_with(listing: np.ndarray) -> np.ndarray:
    row = metrics.empty_rows(1)
    row["level_number"], row["endpoints"] = 2, listing
    return row


def plain(value: Any) -> Any:
    if isinstance(value, classad2.ClassAd):
        return {name: plain(value[name]) for name in value}
    return [plain(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=examples(200))
@given(listings())
def test_both_parsers_read_the_first_three(listing: np.ndarray) -> None:
    (text,) = classad.usage_ads(row_with(listing))
    assert text.isascii() and len(text) <= classad.LIMIT_IO
    new = plain(classad2.ClassAd(text))
    assert new == plain(classad2.parseOne(f"JobLensUsage = {text}\n")["JobLensUsage"])
    used = listing[:LISTED][listing["scope"][:LISTED] != Scope.NONE][: endpoint_ads.MOST]
    told = new.get("Endpoint", [])
    assert len(told) == len(used)
    for ad, entry in zip(told, used):
        assert ipaddress.ip_address(ad["Address"]).packed in entry["address"].tobytes()
        assert ad.get("Port", 0) == entry["port"]
        assert ad.keys() <= MEANINGS.keys()
        assert (ad["SentBytes"], ad["ReceivedBytes"]) == (entry["sent_bytes"], entry["received_bytes"])
        causes = ("Refused", "TimedOut", "Unreachable", "FailedOtherwise")
        assert ad["Failed"] == sum(ad.get(cause, 0) for cause in causes)
        assert ("RttSeconds" in ad) == (not np.isnan(entry["rtt_seconds"]))


def test_an_ad_without_room_loses_the_smaller_endpoints_first() -> None:
    listing = np.zeros(LISTED + 1, ENDPOINT)
    listing["scope"][:3], listing["sent_bytes"][:3] = Scope.OUTSIDE, (300, 200, 100)
    row = row_with(listing)
    for metric in metrics.METRICS:
        row[metric.column] = 123456789.25 if metric.is_float else 123456789012
    values, (listed,) = row[metrics.SINGLE].tolist()[0], endpoint_ads.lists(row["endpoints"])
    seen = []
    for limit in range(5000, 200, -50):
        told = plain(classad2.ClassAd(shorten(classad._draft(values, {ENDPOINTS: listed}), limit)))
        sizes = [ad["SentBytes"] for ad in told.get(ENDPOINTS, [])]
        assert sizes == [300, 200, 100][: len(sizes)]
        seen.append(len(sizes))
    assert seen == sorted(seen, reverse=True) and (seen[0], seen[-1]) == (3, 0) and 1 in seen


def test_a_row_below_io_has_no_list() -> None:
    assert "Endpoint" not in classad.usage_ads(metrics.empty_rows(1))[0]


def test_addresses_are_written_as_people_do() -> None:
    assert where(b"\0" * 10 + b"\xff\xff\xc0\x00\x02\x07", 1094) == "192.0.2.7:1094"
    assert where(ipaddress.ip_address("2001:db8::1").packed, 1094) == "[2001:db8::1]:1094"
    assert where(ipaddress.ip_address("2001:db8::1").packed, 0) == "2001:db8::1"
