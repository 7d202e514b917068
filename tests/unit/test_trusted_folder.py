"""Whether strangers can put something in a folder's place, and folders that are made where they could try."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from condor_joblens.common.trusted_folder import changeable_by, make_folders

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Below /tmp, which has the sticky bit, and ours from there on."""
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == os.geteuid() and each != Path("/tmp") and each != Path("/"):
            each.chmod(0o755)
    return tmp_path


def test_our_own_folder_is_nobody_elses(folder: Path) -> None:
    assert changeable_by(str(folder)) == changeable_by(str(folder / "not" / "there" / "yet")) == ""


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write(folder: Path, mode: int) -> None:
    (folder / "pins").mkdir()
    (folder / "pins").chmod(mode)
    assert changeable_by(str(folder / "pins")) == f"{folder}/pins may be written by others than its owner"


def test_above_it_a_sticky_bit_is_enough(folder: Path) -> None:
    above = folder / "bpf"
    (above / "pins").mkdir(parents=True)
    above.chmod(0o1777)
    assert changeable_by(str(above / "pins")) == ""
    above.chmod(0o777)
    assert changeable_by(str(above / "pins")) == f"{above} may be written by others than its owner"


@as_root
def test_a_strangers_folder(folder: Path) -> None:
    (folder / "pins" / "hash").mkdir(parents=True)
    os.chown(folder / "pins", NOBODY, NOBODY)
    assert changeable_by(str(folder / "pins" / "hash")) == f"{folder}/pins belongs to the user {NOBODY}"


def test_a_link_is_no_folder(folder: Path) -> None:
    (folder / "pins").symlink_to("/usr")
    assert changeable_by(str(folder / "pins")) == f"{folder}/pins is no folder"


@as_root
def test_what_is_missing_is_made_for_the_user_and_nobody_else(folder: Path) -> None:
    make_folders(str(folder / "lib" / "spool"), NOBODY, NOBODY)
    for made in (folder / "lib", folder / "lib" / "spool"):
        found = made.stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (NOBODY, 0o700)
    assert folder.stat().st_uid == 0, "what was there is left alone"
    make_folders(str(folder / "lib" / "spool"), NOBODY, NOBODY)


@as_root
def test_links_are_followed_only_where_root_made_them(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "link").symlink_to(folder / "elsewhere")
    make_folders(str(folder / "link" / "spool"), NOBODY, NOBODY)
    assert (folder / "elsewhere" / "spool").is_dir()
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", NOBODY, NOBODY)
    (folder / "theirs" / "link").symlink_to("/usr")
    with pytest.raises(OSError, match="theirs/link"):
        make_folders(str(folder / "theirs" / "link" / "spool"), NOBODY, NOBODY)
    assert not Path("/usr/spool").exists()


@as_root
def test_nothing_is_made_in_another_users_folder(folder: Path) -> None:
    (folder / "theirs").mkdir()
    os.chown(folder / "theirs", 12345, 12345)
    with pytest.raises(OSError, match="theirs/spool"):
        make_folders(str(folder / "theirs" / "spool"), NOBODY, NOBODY)
    assert list((folder / "theirs").iterdir()) == []
