"""A file that is written by a rename: whole or as it was, with its mode, through no link, and nothing is left over."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(st.binary(max_size=1000), st.sampled_from([0o600, 0o640, 0o644]), st.booleans())
def test_content_and_mode_are_as_told(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, mode: int, sync: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    before = os.umask(0o077)
    try:
        files.write(str(path), data, mode, sync)
        files.write(str(path), data + b"2", mode, sync)
    finally:
        os.umask(before)
    assert path.read_bytes() == data + b"2" and stat.S_IMODE(path.stat().st_mode) == mode
    assert names(path.parent) == ["file"]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with files.replacing(str(path)) as descriptor:
        os.write(descriptor, b"half")
        assert path.read_text() == "old"
        assert stat.S_IMODE((tmp_path / "file.new").stat().st_mode) == 0o600
    assert path.read_text() == "half" and names(tmp_path) == ["file"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), files.replacing(str(path)) as descriptor:
        os.write(descriptor, b"half")
        raise KeyError
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    written: list[int] = []

    def write(_: int, data: memoryview) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(1)
        return len(data) // 2

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        files.write(str(path), b"new content")
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_a_write_that_takes_a_part_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    files.write(str(tmp_path / "file"), b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


@pytest.mark.parametrize("left", ["file", "symlink", "hardlink", "dangling"])
def test_what_is_at_the_temporary_name_is_removed_and_no_link_is_written_through(tmp_path: Path, left: str) -> None:
    precious, temporary = tmp_path / "precious", tmp_path / "file.new"
    precious.write_text("precious")
    if left == "file":
        temporary.write_text("of a process that was killed")
    elif left == "hardlink":
        os.link(precious, temporary)
    else:
        os.symlink(precious if left == "symlink" else tmp_path / "nowhere", temporary)
    files.write(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"new" and not (tmp_path / "file").is_symlink()
    assert precious.read_text() == "precious" and names(tmp_path) == ["file", "precious"]


def test_a_link_at_the_path_itself_is_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.symlink(precious, tmp_path / "file")
    files.write(str(tmp_path / "file"), b"new")
    assert precious.read_text() == "precious" and not (tmp_path / "file").is_symlink()


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write(str(tmp_path / "no" / "file"), b"")
