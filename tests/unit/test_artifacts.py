"""Artifacts: whole files or none, limits with a share for each owner, and headers that nobody has to believe."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condor_joblens.common import privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.shm import artifacts, layout
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact, pack, parse, split_name
from condor_joblens.shm.artifacts import ArtifactGone, ArtifactLimits, ArtifactReader, ArtifactRefused, ArtifactWriter

LIMITS = ArtifactLimits(1 << 20, 8 << 20, 3600.0)
STRANGER, EXPORTER = 54321, 54322


def about(owner: str = "alice", **more: Any) -> Artifact:
    facts = {"kind": "profile", "content_type": "text/plain", "run_number": 7, "begun": 1.5, "ended": 2.5, **more}
    return Artifact(owner=owner, **facts)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "artifacts")


def files(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_kept_is_read_whole(folder: str) -> None:
    writer = ArtifactWriter(folder, LIMITS)
    given = about(run="ap#1.0#7#1", slot="slot1_1", node="node1", uid=1000, sinks="kafka", content_encoding="gzip")
    artifact = writer.add(given, [b"one ", b"", b"two"])
    reader = ArtifactReader(folder)
    assert reader.names() == [artifact.name] == [f"{artifact.sequence}.profile"]
    assert reader.read(artifact.name) == (artifact, b"one two")
    assert reader.describe(artifact.name) == artifact
    given_by_writer = {"sequence": artifact.sequence, "length": 7, "sha256": artifact.sha256}
    assert artifact == dataclasses.replace(given, **given_by_writer)
    assert [(one.name, one.run_number, one.uid) for one in writer.stored(7)] == [(artifact.name, 7, 1000)]
    assert writer.stored(8) == [] and writer.written == 1


def test_sequences_rise_also_across_writers_and_a_clock_that_stands(folder: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(artifacts.time, "time_ns", lambda: 5_000_000)
    names = [ArtifactWriter(folder, LIMITS).add(about(), [b"x"]).name for _ in range(3)]
    assert names == ["5000.profile", "5001.profile", "5002.profile"] == ArtifactReader(folder).names()


@pytest.mark.parametrize("kind", ["", "Profile", "../x", "a/b", "a.b", "1a", "a" * 33, "a\n", "ä"])
def test_a_kind_is_a_plain_word(folder: str, kind: str) -> None:
    writer = ArtifactWriter(folder, LIMITS)
    with pytest.raises(ValueError, match="kind"):
        writer.add(about(kind=kind), [b"x"])
    assert files(folder) == []


@pytest.mark.parametrize("name", ["", ".", "unfinished", "../1.a", "1.a/..", "0.a", "01.a", f"{1 << 64}.a", "1.a\n"])
def test_a_name_that_none_can_have_is_not_looked_for(folder: str, name: str) -> None:
    ArtifactWriter(folder, LIMITS)
    assert split_name(name) is None
    with pytest.raises(ArtifactGone):
        ArtifactReader(folder).read(name)


def test_what_raises_in_the_middle_leaves_nothing(folder: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(5, "the producer is dead")

    writer = ArtifactWriter(folder, LIMITS)
    with pytest.raises(OSError, match="producer"):
        writer.add(about(), pieces())
    assert files(folder) == [] and writer.stored() == [] and writer.stored_bytes == 0


def write_for_ever(folder: str, written: Any) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        written.set()
        signal.pause()

    ArtifactWriter(folder, LIMITS).add(about(), pieces())


def test_a_writer_that_is_killed_in_the_middle_leaves_nothing_that_a_reader_sees(folder: str) -> None:
    before = ArtifactWriter(folder, LIMITS).add(about(), [b"before"])
    context = multiprocessing.get_context("spawn")
    written = context.Event()
    process = context.Process(target=write_for_ever, args=(folder, written))
    process.start()
    assert written.wait(60)
    assert len(files(folder)) == 2 and ArtifactReader(folder).names() == [before.name]
    process.kill()
    process.join()
    writer = ArtifactWriter(folder, LIMITS)
    assert files(folder) == [before.name] == [stored.name for stored in writer.stored()]
    assert writer.add(about(), [b"after"]).sequence > before.sequence


# --- limits


def test_one_that_is_too_large_is_refused_and_counted(folder: str) -> None:
    writer = ArtifactWriter(folder, ArtifactLimits(10_000, 1 << 20, 60))
    writer.add(about(), [bytes(10_000 - HEADER_BYTES)])
    with pytest.raises(ArtifactRefused, match=f"larger than {10_000 - HEADER_BYTES} bytes") as refused:
        writer.add(about(), [bytes(5000), bytes(5000 - HEADER_BYTES + 1)])
    assert refused.value.cause == "too_large" and writer.refused == {"too_large": 1}
    assert len(files(folder)) == 1 == writer.written


def test_one_alone_can_not_take_the_room_of_all(folder: str) -> None:
    writer = ArtifactWriter(folder, ArtifactLimits(1 << 30, 64 << 10, 60))
    with pytest.raises(ArtifactRefused):
        writer.add(about(), [bytes(16 << 10)])
    writer.add(about(), [bytes((16 << 10) - HEADER_BYTES)])


def of(writer: ArtifactWriter) -> list[tuple[str, str]]:
    """What each owner has left, by slot: a mark of the test's."""
    reader = ArtifactReader(writer.folder)
    return [(found.owner, found.slot) for found in map(reader.describe, reader.names())]


def test_who_holds_most_loses_his_oldest(folder: str) -> None:
    writer = ArtifactWriter(folder, ArtifactLimits(1 << 20, 8 * 4096, 60))
    for number in range(3):
        writer.add(about("bob", slot=f"b{number}"), [b"x"])
    for number in range(20):
        writer.add(about("alice", slot=f"a{number}"), [b"x"])
    assert of(writer) == [("bob", f"b{n}") for n in range(3)] + [("alice", f"a{n}") for n in range(15, 20)]
    writer.add(about("carol", slot="c"), [b"x"])
    assert of(writer)[3] == ("alice", "a16")
    assert writer.deleted == {"room": 16} and writer.stored_bytes == 8 * 4096


def test_those_whose_owner_is_not_sure_share_with_nobody_but_their_own_user(folder: str) -> None:
    writer = ArtifactWriter(folder, ArtifactLimits(1 << 20, 8 * 4096, 60))
    writer.add(about("", uid=STRANGER, slot="b"), [b"x"])
    for number in range(20):
        writer.add(about("", uid=EXPORTER, slot=f"a{number}"), [b"x"])
    assert of(writer) == [("", "b")] + [("", f"a{n}") for n in range(13, 20)]


def test_who_has_most_loses_his_oldest_however_small_they_are(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_KEPT", 8)
    writer = ArtifactWriter(folder, LIMITS)
    for number in range(3):
        writer.add(about("bob", slot=f"b{number}"), [bytes(1 << 20)[: (1 << 20) - HEADER_BYTES]])
    for number in range(20):
        writer.add(about("alice", slot=f"a{number}"), [b"x"])
    assert of(writer) == [("bob", f"b{n}") for n in range(3)] + [("alice", f"a{n}") for n in range(15, 20)]
    assert writer.count == 8 and writer.deleted == {"room": 15}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 20_000)), max_size=60),
    total=st.integers(16, 80).map(lambda pages: pages * 1024),
)
def test_limits_hold_whatever_comes_and_a_small_share_is_safe(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], total: int
) -> None:
    writer = ArtifactWriter(str(tmp_path_factory.mktemp("store") / "artifacts"), ArtifactLimits(1 << 20, total, 60))
    quiet = writer.add(about("quiet"), [b"x"]) if total >= 4 * 8192 else None
    for owner, size in steps:
        try:
            writer.add(about(owner), [bytes(size)])
        except ArtifactRefused as refused:
            assert refused.cause == "too_large" and HEADER_BYTES + size > total // 4
        assert writer.stored_bytes <= total
    stored = writer.stored()
    assert [one.name for one in stored] == ArtifactReader(writer.folder).names()
    sizes = [os.stat(f"{writer.folder}/{one.name}").st_size for one in stored]
    assert writer.stored_bytes == sum(-(-size // 4096) * 4096 for size in sizes) == sum(one.size for one in stored)
    if quiet is not None and {owner for owner, _ in steps} <= {"a"}:
        assert quiet.name in [one.name for one in stored], "one owner's artifacts push out no other's"
    again = ArtifactWriter(writer.folder, writer.limits)
    assert [dataclasses.replace(one, since=0) for one in again.stored()] == [
        dataclasses.replace(one, since=0) for one in stored
    ]


def test_what_is_old_goes(folder: str, monkeypatch: Any) -> None:
    now = 1000.0
    monkeypatch.setattr(artifacts.time, "monotonic", lambda: now)
    writer = ArtifactWriter(folder, ArtifactLimits(1 << 20, 8 << 20, 60))
    old = writer.add(about(), [b"old"])
    now += 50
    young = writer.add(about(), [b"young"])
    now += 9
    writer.delete_old()
    assert files(folder) == [old.name, young.name]
    now += 1
    writer.delete_old()
    assert files(folder) == [young.name] and writer.deleted == {"age": 1}
    os.utime(f"{folder}/{young.name}", (0, os.stat(f"{folder}/{young.name}").st_mtime - 61))
    assert ArtifactWriter(folder, writer.limits).stored() == [] and files(folder) == []


def test_new_limits_hold_at_once(folder: str) -> None:
    writer = ArtifactWriter(folder, LIMITS)
    stored = [writer.add(about(), [b"x"]) for _ in range(4)]
    writer.limit(ArtifactLimits(1 << 20, 2 * 4096, 3600))
    assert files(folder) == [one.name for one in stored[2:]]
    writer.limit(ArtifactLimits(1 << 20, 8 << 20, 0))
    assert files(folder) == [] and writer.stored_bytes == 0


def test_a_full_disk_makes_room_by_what_is_kept_and_refuses_what_does_not_fit(disk: Callable[[str], Path]) -> None:
    place = disk("64k")
    writer = ArtifactWriter(str(place / "artifacts"), ArtifactLimits(1 << 20, 1 << 30, 60))
    first = writer.add(about("bob"), [bytes(4096)])
    for number in range(12):
        last = writer.add(about("alice", slot=str(number)), [bytes(9000)])
    assert first.name in files(writer.folder) and last.name in files(writer.folder)
    assert writer.deleted["room"] and not writer.refused
    (place / "other").write_bytes(bytes(os.statvfs(place).f_bavail * 4096))
    before = len(writer.stored())
    with pytest.raises(ArtifactRefused, match="No space left"):
        writer.add(about("alice"), [bytes(80_000)])
    assert writer.refused == {"no_room": 1} and "unfinished" not in files(writer.folder)
    assert len(writer.stored()) < before
    reader = ArtifactReader(writer.folder)
    assert all(len(reader.read(name)[1]) in (4096, 9000) for name in reader.names())


def test_a_full_disk_costs_the_others_no_more_than_one_artifact_may_take(disk: Callable[[str], Path]) -> None:
    place = disk("256k")
    writer = ArtifactWriter(str(place / "artifacts"), ArtifactLimits(16 << 10, 1 << 20, 60))
    for _ in range(12):
        writer.add(about("bob"), [bytes(10_000)])
    (place / "other").write_bytes(bytes(os.statvfs(place).f_bavail * 4096))

    def greedy() -> Iterator[bytes]:
        for _ in range(15):
            yield bytes(1000)
            # somebody else is quicker
            with (place / "other").open("ab", buffering=0) as other, contextlib.suppress(OSError):
                other.write(bytes(40_000))

    with pytest.raises(ArtifactRefused, match="No space left"):
        writer.add(about("alice"), greedy())
    assert len(writer.stored()) >= 12 - 3


# --- who may read


def as_user(uid: int, parent: str, what: Callable[[int], object]) -> bool:
    """Whether a process of this user can do that, with a descriptor of the folder above the artifacts'."""
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            what(above)
        except PermissionError:
            os._exit(1)
        except BaseException:
            os._exit(2)
        os._exit(0)
    os.close(above)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_only_root_and_the_exporter_may_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    writer = ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)
    before = writer.add(about(), [b"before"])
    privilege.let_read_folder(writer.folder, EXPORTER)
    after = writer.add(about(), [b"after"])

    def read(name: str) -> Callable[[int], object]:
        def body(above: int) -> None:
            os.stat("artifacts", dir_fd=above)
            descriptor = os.open(f"artifacts/{name}", os.O_RDONLY, dir_fd=above)
            assert os.pread(descriptor, 8, 0) == b"JLARTFCT"

        return body

    def names(above: int) -> None:
        assert after.name in os.listdir(os.open("artifacts", os.O_RDONLY, dir_fd=above))

    def write(above: int) -> None:
        os.open("artifacts/1.x", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=above)

    def change(above: int) -> None:
        os.open(f"artifacts/{after.name}", os.O_WRONLY, dir_fd=above)

    parent = str(tmp_path)
    for name in (before.name, after.name):
        assert as_user(EXPORTER, parent, read(name)) and not as_user(STRANGER, parent, read(name))
    assert as_user(EXPORTER, parent, names) and not as_user(STRANGER, parent, names)
    for what in (write, change):
        assert not as_user(EXPORTER, parent, what) and not as_user(STRANGER, parent, what)
    umask = os.umask(0o077)
    try:
        dark = ArtifactWriter(writer.folder, LIMITS)
        privilege.let_read_folder(dark.folder, EXPORTER)
        assert as_user(EXPORTER, parent, read(dark.add(about(), [b"x"]).name))
    finally:
        os.umask(umask)


def test_without_an_access_list_nobody_else_may_enter(folder: str) -> None:
    ArtifactWriter(folder, LIMITS)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_link_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "artifacts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="no folder"):
        ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)


# --- what is none


def damaged(folder: str, change: Callable[[bytearray], object]) -> str:
    stored = ArtifactWriter(folder, LIMITS).add(about(), [b"content"])
    path = Path(folder, stored.name)
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return stored.name


def put(at: int, new: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[at : at + len(new)] = new

    return change


def field(name: str) -> int:
    assert layout.ARTIFACT.fields is not None
    return int(layout.ARTIFACT.fields[name][1])


@pytest.mark.parametrize(
    "change, words",
    [
        (put(0, b"JLEVENTS"), "is no artifact of joblensd's"),
        (put(8, struct.pack("<I", layout.ARTIFACT_VERSION - 1)), "another version"),
        (put(12, struct.pack(">I", layout.BYTE_ORDER)), "another version"),
        (put(16, struct.pack("<I", 8)), "says what can't be"),
        (put(field("length"), struct.pack("<Q", 8)), "is truncated"),
        (put(field("length"), b"\xff" * 8), "is truncated"),
        (put(field("length"), struct.pack("<Q", 6)), "longer than its header says"),
        (put(field("run"), b"another"), "its header's checksum"),
        (put(field("uid"), b"\0\0\0\0"), "its header's checksum"),
        (put(HEADER_BYTES, b"C"), "its content's checksum"),
        (lambda content: content.clear(), "is no artifact"),
        (lambda content: content.__delitem__(slice(100, None)), "is truncated"),
        (lambda content: content.__delitem__(slice(HEADER_BYTES + 3, None)), "is truncated"),
        (lambda content: content.append(0), "longer than its header says"),
    ],
)
def test_a_damaged_file_is_told_as_such(folder: str, change: Callable[[bytearray], object], words: str) -> None:
    name = damaged(folder, change)
    with pytest.raises(JobLensError, match=words) as told:
        ArtifactReader(folder).read(name)
    assert name in str(told.value) and not isinstance(told.value, ArtifactGone)


def test_a_writer_deletes_what_it_does_not_understand_and_counts_it(folder: str) -> None:
    name = damaged(folder, put(8, struct.pack("<I", layout.ARTIFACT_VERSION - 1)))
    writer = ArtifactWriter(folder, LIMITS)
    assert files(folder) == [] and writer.deleted == {"damaged": 1}
    with pytest.raises(ArtifactGone):
        ArtifactReader(folder).read(name)


def test_a_file_under_anothers_name_is_not_believed(folder: str) -> None:
    stored = ArtifactWriter(folder, LIMITS).add(about(), [b"x"])
    os.rename(f"{folder}/{stored.name}", f"{folder}/{stored.sequence}.trace")
    with pytest.raises(JobLensError, match="its header is of"):
        ArtifactReader(folder).read(f"{stored.sequence}.trace")


def test_what_is_no_file_or_others_may_write_is_not_read(folder: str) -> None:
    stored = ArtifactWriter(folder, LIMITS).add(about(), [b"x"])
    os.chmod(f"{folder}/{stored.name}", 0o666)
    with pytest.raises(JobLensError, match="others may write it"):
        ArtifactReader(folder).read(stored.name)
    os.mkfifo(f"{folder}/5.x")
    os.symlink("/etc/passwd", f"{folder}/6.x")
    for name in ("5.x", "6.x"):
        with pytest.raises(JobLensError):
            ArtifactReader(folder).read(name)


TEXT = st.text(max_size=300)


@settings(max_examples=300, deadline=None)
@given(
    texts=st.fixed_dictionaries(
        {name: TEXT for name in ("content_type", "content_encoding", "run", "owner", "slot", "sinks", "node")}
    ),
    numbers=st.fixed_dictionaries({name: st.integers(0, (1 << 64) - 1) for name in ("sequence", "run_number")}),
    uid=st.none() | st.integers(0, 0xFFFFFFFE),
    begun=st.floats(allow_nan=False, allow_infinity=False),
    length=st.integers(0, 1 << 40),
)
def test_a_header_comes_back_with_its_texts_cut(
    texts: dict[str, str], numbers: dict[str, int], uid: int | None, begun: float, length: int
) -> None:
    given = Artifact("trace", begun=begun, ended=begun, uid=uid, length=length, **{**texts, **numbers})  # type: ignore[arg-type]
    packed = pack(given)
    assert len(packed) == HEADER_BYTES
    found = parse(packed, HEADER_BYTES + length)
    for name, value in texts.items():
        encoded, back = value.encode("utf-8", "backslashreplace").rstrip(b"\0"), getattr(found, name).encode()
        assert encoded.startswith(back)
        assert encoded == back or len(back) > layout.ARTIFACT[name].itemsize - 4
    assert dataclasses.replace(found, **texts) == given


@settings(max_examples=500, deadline=None)
@given(content=st.binary(max_size=HEADER_BYTES + 20), size=st.integers(0, (1 << 63) - 1), begin=st.integers(0, 40))
def test_any_bytes_are_an_artifact_or_told_what_is_wrong(content: bytes, size: int, begin: int) -> None:
    real = pack(about(length=5))
    for packed in (content, real[:begin] + content, real[: HEADER_BYTES - len(content)] + content):
        try:
            parse(packed[:HEADER_BYTES], size)
        except JobLensError as error:
            assert str(error).startswith(("is ", "was "))


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, HEADER_BYTES - 1), new=st.binary(min_size=1, max_size=8))
def test_a_header_that_was_changed_is_not_believed_though_its_checksum_is_made_anew(at: int, new: bytes) -> None:
    packed = bytearray(pack(about(length=5, sequence=1)))
    packed[at : at + len(new)] = new
    del packed[HEADER_BYTES:]
    crc = field("header_crc")
    if bytes(packed) == pack(about(length=5, sequence=1)):
        return
    with pytest.raises(JobLensError):
        parse(bytes(packed), HEADER_BYTES + 5)
    packed[crc : crc + 4] = bytes(4)
    packed[crc : crc + 4] = struct.pack("<I", zlib.crc32(bytes(packed)))
    try:
        found = parse(bytes(packed), HEADER_BYTES + 5)
    except JobLensError:
        return
    assert found.length == 5 and found.kind.isascii() and abs(found.begun) < float("inf")


def test_the_header_in_c_is_the_same(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text(
        '#include <stdio.h>\n#include "joblens_shm.h"\n'
        "int main(int argc, char **argv) { static struct { struct joblens_artifact header; char rest[64]; } all;\n"
        ' FILE *file = fopen(argv[argc - 1], "rb"); size_t bytes = fread(&all, 1, sizeof(all), file);\n'
        " const char *wrong = joblens_check_artifact(&all, bytes); fclose(file);\n"
        " if (wrong) return puts(wrong), 1;\n"
        ' return printf("%.32s %.176s %.*s\\n", all.header.kind, all.header.run, (int)all.header.length,'
        " (char *)&all + all.header.content_at) < 0; }\n"
    )
    include = f"-I{Path(layout.__file__).parent}"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", include, "-o", tmp_path / "x", source], check=True)
    writer = ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)
    stored = writer.add(about(run="ap#1.0#7#1"), [b"the content"])
    path = Path(writer.folder, stored.name)
    read = subprocess.run([tmp_path / "x", path], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stdout) == (0, "profile ap#1.0#7#1 the content\n")
    path.write_bytes(path.read_bytes()[:-1])
    read = subprocess.run([tmp_path / "x", path], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stdout) == (1, "is truncated\n")
