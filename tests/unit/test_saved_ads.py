"""The ads that are kept for the next time that the policies are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.jobs.saved_ads import OWNER_BYTES, SavedAds

AD = b'Owner = "alice"\nGlobalJobId = "ap#1.0#1"\n'


def test_ads_and_memories_outlive_the_agent(tmp_path: Path) -> None:
    kept = SavedAds(str(tmp_path / "ads"))
    assert kept.keep(7, AD, "alice")
    kept.remember(7, {"entries": {"x": 1.5}})
    again = SavedAds(str(tmp_path / "ads"))
    assert (again.ad(7), again.memory(7)) == (AD, {"entries": {"x": 1.5}})
    again.keep_only([8])
    assert (again.ad(7), again.memory(7), again.has(7)) == (None, {}, False)
    assert not list((tmp_path / "ads").iterdir())


def test_ads_are_for_root_alone_and_bounded(tmp_path: Path) -> None:
    kept = SavedAds(str(tmp_path / "ads"))
    assert kept.keep(1, b"x" * 1000, "alice")
    assert (tmp_path / "ads").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "ads" / "1.ad").stat().st_mode & 0o777 == 0o600
    for number in range(2, 6):
        kept.keep(number, b"x" * (OWNER_BYTES - 500), f"owner {number}")
    assert [number for number in range(1, 6) if kept.has(number)] == [1, 2, 3, 4, 5]
    assert not kept.keep(6, b"x" * 1001, "bob")
    assert not kept.has(6)
    assert kept.keep(1, b"x" * 2000, "alice"), "its own place counts as free"


def test_one_owner_leaves_room_for_the_others(tmp_path: Path) -> None:
    folder = str(tmp_path / "ads")
    kept = SavedAds(folder)
    ad = b"x" * (OWNER_BYTES // 4)
    assert [kept.keep(number, ad, "mallory") for number in range(6)] == [True] * 4 + [False] * 2
    assert kept.keep(10, ad, "alice")
    again = SavedAds(folder)
    for number in range(4):
        again.assign(number, "mallory")
    assert not again.keep(5, ad, "mallory"), "nor after a restart"
    again.forget(0)
    assert again.keep(5, ad, "mallory")


@given(st.binary(max_size=50))
def test_a_memory_that_was_cut_is_none(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("kept")
    (folder / "7.json").write_bytes(data)
    assert isinstance(SavedAds(str(folder)).memory(7), dict)
