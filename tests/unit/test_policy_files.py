"""Policy folders: which files count, in which order, and the one line that each unusable one gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from condor_joblens.policy import policy_files, print_policies
from condor_joblens.policy.policy_files import MAX_BYTES, MAX_NAME, read_policies

ROOT = Path(__file__).resolve().parents[2]


def put(folder: Path, name: str, data: bytes = b"return function() end") -> Path:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    path = folder / name
    path.write_bytes(data)
    path.chmod(0o644)
    return path


def test_files_come_in_name_order_and_the_later_folder_wins(tmp_path: Path) -> None:
    ours, sites = tmp_path / "ours", tmp_path / "sites"
    put(ours, "10-default.lua", b"ours")
    put(ours, "30-last.lua", b"last")
    put(sites, "20-site.lua", b"site")
    put(sites, "10-default.lua", b"sites")
    put(sites, "README", b"no policy")
    put(sites, ".20-site.lua.swp.lua", b"an editor's")
    policies, problems = read_policies([str(ours), str(sites)])
    assert policies == [("10-default.lua", "sites"), ("20-site.lua", "site"), ("30-last.lua", "last")]
    assert problems == []


def test_a_missing_folder_is_told_and_the_others_count(tmp_path: Path) -> None:
    put(tmp_path / "there", "10-a.lua", b"a")
    policies, (line,) = read_policies([str(tmp_path / "gone"), str(tmp_path / "there")])
    assert policies == [("10-a.lua", "a")]
    assert line.startswith(f"JOBLENS_POLICY_DIR = {tmp_path}/gone: No such file or directory")
    assert "take it out of the knob" in line


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (line,) = read_policies([str(put(tmp_path / "d", "file"))])[1]
    assert "Not a directory" in line


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"-- fine\n-- caf\xe9\n", "line 2 is not UTF-8; save it as UTF-8"),
        (b"-" * (MAX_BYTES + 1), "it has more than 256 KB; shorten it"),
    ],
)
def test_an_unfit_file_is_told_and_the_others_count(tmp_path: Path, data: bytes, why: str) -> None:
    put(tmp_path / "d", "10-good.lua", b"good")
    bad = put(tmp_path / "d", "20-bad.lua", data)
    policies, problems = read_policies([str(tmp_path / "d")])
    assert policies == [("10-good.lua", "good")]
    assert problems == [f"JOBLENS_POLICY_DIR: {bad} is not used: {why}"]


def test_what_everybody_can_write_is_refused(tmp_path: Path) -> None:
    bad = put(tmp_path / "d", "10-a.lua")
    bad.chmod(0o666)
    policies, (line,) = read_policies([str(tmp_path / "d")])
    assert policies == []
    assert line == f"JOBLENS_POLICY_DIR: {bad} is not used: everybody can write it (mode 666); chmod o-w it"
    bad.chmod(0o644)
    (tmp_path / "d").chmod(0o777)
    policies, (line,) = read_policies([str(tmp_path / "d")])
    assert policies == []
    assert "everybody can write it (mode 777)" in line


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "d", "10-a.lua")
    if os.geteuid() == 0:
        os.chown(path, 12345, 0)
        owner = 12345
    else:  # the folder is then refused for its owner, by the same check
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    policies, (line,) = read_policies([str(tmp_path / "d")])
    assert policies == []
    assert f"it belongs to user {owner}, who is not root; chown it to root" in line


def test_a_fifo_a_folder_and_a_dangling_link_are_told_and_block_nothing(tmp_path: Path) -> None:
    put(tmp_path / "d", "10-good.lua", b"good")
    os.mkfifo(tmp_path / "d" / "20-fifo.lua")
    (tmp_path / "d" / "30-folder.lua").mkdir()
    (tmp_path / "d" / "40-link.lua").symlink_to("nowhere")
    policies, problems = read_policies([str(tmp_path / "d")])
    assert policies == [("10-good.lua", "good")]
    assert [line.partition(" is not used: ")[2].partition(";")[0] for line in problems] == [
        "it is no regular file",
        "it is no regular file",
        "No such file or directory",
    ]


def test_a_name_that_would_not_fit_a_log_line_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "d", "x" * MAX_NAME + ".lua")
    put(tmp_path / "d", "a\nb.lua")
    policies, problems = read_policies([str(tmp_path / "d")])
    assert policies == []
    assert len(problems) == 2
    assert all(line.isprintable() and "rename it" in line for line in problems)


def test_together_they_are_bounded(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path / "d", f"{number}.lua", b"-" * MAX_BYTES)
    policies, (line,) = read_policies([str(tmp_path / "d")])
    assert [name for name, _ in policies] == ["0.lua", "1.lua", "2.lua", "3.lua"]
    assert "4.lua is not used: all together have more than 1024 KB; shorten them" in line


def test_a_folder_that_is_replaced_while_it_is_read_is_the_old_set_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release in ("old", "new"):
        (tmp_path / release).mkdir()
        for name in ("10-a.lua", "20-b.lua", "30-c.lua"):
            (tmp_path / release / name).write_text(release)
    link = tmp_path / "policies.d"
    link.symlink_to("old")
    read = policy_files._read

    def replaced_in_the_middle(path: Path) -> str:
        text = read(path)
        if path.name == "20-b.lua" and link.readlink() == Path("old"):
            link.unlink()
            link.symlink_to("new")
        return text

    monkeypatch.setattr(policy_files, "_read", replaced_in_the_middle)
    policies, problems = policy_files.read_policies([str(link)])
    assert ([text for _, text in policies], problems) == (["new"] * 3, [])


def test_policies_that_never_come_to_rest_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "10-a.lua").write_text("x")
    read, count = policy_files._read, iter(range(1000))

    def changed_each_time(path: Path) -> str:
        (tmp_path / f"{next(count)}.lua").write_text("y")
        return read(path)

    monkeypatch.setattr(policy_files, "_read", changed_each_time)
    assert "changed 5 times while they were read" in policy_files.read_policies([str(tmp_path)])[1][-1]


def test_what_another_process_prints_of_them_is_the_same(tmp_path: Path) -> None:
    """The folders are those of the configuration that its command prints."""
    put(tmp_path / "d", "10-a.lua", "rule 'größer'".encode())
    put(tmp_path / "d", "20-bad.lua", b"\xff")
    put(tmp_path / "t", "10-t.lua", b"on('exec', print)")
    (tmp_path / "config").write_text(f"JOBLENS_POLICY_DIR = {tmp_path}/d\nJOBLENS_TRIGGERS = {tmp_path}/t\n")
    command = [sys.executable, "-m", print_policies.__name__, "cat", str(tmp_path / "config")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert print_policies.parsed(done.stdout) == read_policies([f"{tmp_path}/d"])
    assert print_policies.parsed(done.stdout, triggers=True) == read_policies([f"{tmp_path}/t"])
    assert print_policies.parsed(done.stdout)[0] == [("10-a.lua", "rule 'größer'")]
    for line in ("", "[]", "{}", "[1, 2]", '[["a"], []]', '[[["a"], []], []]'):
        with pytest.raises((ValueError, TypeError)):
            print_policies.parsed(line)
    assert subprocess.run([*command[:3], "false"], capture_output=True, cwd=ROOT).returncode == 1
