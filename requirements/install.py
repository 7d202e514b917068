"""Make the Python environment of a node from pinned wheels: `make install` calls it, under the node's own Python.

    install.py check|install WHEEL PREFIX

WHEEL is the product's. Wheels come from a bundle if it is there. Else from the network, but only if ONLINE is `yes` in
the environment: `check` says what would be fetched and fails. Each wheel has the hash that is pinned, or pip refuses
it. `check` changes nothing. More of the environment: DESTDIR, EXTRAS (with commas between), BUNDLE (a path).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import itertools
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import locks

LARGEST_WHEEL_BYTES, MOST_FILES = 256 << 20, 1000
"""Of a bundle: it is read before anything of it is believed."""

_INSTALLED = "from importlib.metadata import distributions as d\nprint(*{f'{x.name}=={x.version}' for x in d()})"
_INSTALLED_39 = _INSTALLED.replace("x.name", 'x.metadata["Name"]')


def main(step: str, wheel: str, prefix: str) -> None:
    """One of the two steps."""
    python = Path(os.environ.get("DESTDIR", "") + prefix) / "bin" / "python"
    try:
        extras = [extra for extra in os.environ.get("EXTRAS", "").split(",") if extra]
        if not _has_htcondor(python):
            extras.append(locks.HTCONDOR)
        entries = locks.select(locks.own_tag(), extras)
    except locks.LockError as error:
        _fail(str(error))
    missing = _missing(python, entries)
    bundle = _bundle(Path(wheel))
    if step == "check":
        _check(missing, bundle, extras)
        return
    if missing:
        _install_packages(python, entries, bundle)
    if not is_installed(Path(wheel), python):
        _pip(python, "--no-index", "--no-deps", "--force-reinstall", str(wheel))


def _check(missing: Sequence[locks.Entry], bundle: Path | None, extras: Sequence[str]) -> None:
    if not missing or (bundle is None and os.environ.get("ONLINE") == "yes"):
        return
    names = ", ".join(f"{entry.name} {entry.version}" for entry in missing)
    if bundle is None:
        _fail(
            f"there is no bundle for {locks.own_tag()} on {platform.machine()}, and these packages would be fetched "
            f"from the network: {names}. Where there is a network run {_make_bundle(extras)} and copy "
            "the bundle to dist/ here, or allow it: make install ONLINE=yes"
        )
    found = {hashlib.sha256(content).hexdigest() for _, content in _wheels(bundle)}
    lacks = [f"{entry.name} {entry.version}" for entry in missing if not entry.hashes & found]
    if lacks:
        _fail(
            f"the bundle {bundle} lacks {', '.join(lacks)}, or has them with another hash: run {_make_bundle(extras)} "
            "where it was made"
        )


def _make_bundle(extras: Sequence[str]) -> str:
    """What makes a bundle for this Python, on a machine whose own may be another."""
    more = [f"EXTRAS={','.join(extras)}"] if extras else []
    return " ".join(["make bundle", f"PYTHONS={locks.own_version()}", *more])


def _install_packages(python: Path, entries: Sequence[locks.Entry], bundle: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(entry.lines() for entry in entries), encoding="ascii")
        source = []
        if bundle is not None:
            source = ["--no-index", "--find-links", folder]
            _unpack(bundle, Path(folder))
        elif os.environ.get("ONLINE") != "yes":
            source = ["--no-index"]
        anew = ["--ignore-installed"] if os.environ.get("DESTDIR") else []
        _pip(python, *source, *anew, "--require-hashes", "--only-binary", ":all:", "-r", str(listed))


def is_installed(wheel: Path, python: Path) -> bool:
    """Whether this wheel is what lies in the environment of `python`, each file unchanged: pip would take seconds.

    The RECORD that pip has left names what it has put there: the wheel's files, some of its own, and the commands.
    """
    packages = next(iter(sorted(python.parent.parent.glob("lib/python3*/site-packages"))), None)
    if packages is None or os.environ.get("DESTDIR"):
        return False
    try:
        with zipfile.ZipFile(wheel) as archive:
            record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
            ships = _hashes(archive.read(record).decode())
        has = _hashes((packages / record).read_text("utf-8"))
        more = [path for path in has if path not in ships and not path.startswith((record[: -len("RECORD")], "../"))]
        return not more and {**has, **ships} == has and all(_hash(packages / path) == has[path] for path in has)
    except (OSError, ValueError, StopIteration, zipfile.BadZipFile):  # pip says what is wrong with the wheel
        return False


def _hashes(record: str) -> dict[str, str]:
    """Path -> hash as in RECORD, of those that have one: what was compiled from them has none."""
    return {path: hash for path, hash, _ in csv.reader(record.splitlines()) if hash and not path.endswith(".pyc")}


def _hash(file: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest())
    return "sha256=" + digest.decode().rstrip("=")


def _unpack(bundle: Path, folder: Path) -> None:
    """The wheels, which pip looks into only if their hashes are right."""
    for name, content in _wheels(bundle):
        (folder / name).write_bytes(content)


def _wheels(bundle: Path) -> Iterator[tuple[str, bytes]]:
    """The wheels in a bundle, each with its name: none that is larger than a wheel can be, and not too many."""
    with tarfile.open(bundle) as archive:
        for member in itertools.islice(archive, MOST_FILES):
            is_wheel = member.isfile() and member.name.endswith(".whl") and member.size <= LARGEST_WHEEL_BYTES
            file = archive.extractfile(member) if is_wheel else None
            if file is not None:
                yield Path(member.name).name, file.read()


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*command, *arguments], check=False).returncode != 0:
        _fail("pip could not install what is pinned: it says why above")


def _bundle(wheel: Path) -> Path | None:
    version = wheel.name.split("-")[1]
    name = locks.bundle_name(version, locks.own_tag(), platform.machine())
    given = os.environ.get("BUNDLE")
    found = Path(given) if given else wheel.parent / name
    if given and not found.is_file():
        _fail(f"BUNDLE = {found} is no file")
    return found if found.is_file() else None


def _has_htcondor(python: Path) -> bool:
    """Whether the environment has HTCondor's modules, of the distribution or PyPI's."""
    command = [str(python) if python.exists() else sys.executable, "-c", "import htcondor2, classad2"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _missing(python: Path, entries: Sequence[locks.Entry]) -> list[locks.Entry]:
    """Those that the environment does not have yet in this version."""
    if not python.exists() or os.environ.get("DESTDIR"):
        return list(entries)
    script = _INSTALLED if sys.version_info >= (3, 10) else _INSTALLED_39
    done = subprocess.run([str(python), "-c", script], capture_output=True, text=True, check=False)
    has = {_normal(word) for word in done.stdout.split()}
    return [entry for entry in entries if _normal(f"{entry.name}=={entry.version}") not in has]


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _fail(why: str) -> NoReturn:
    sys.exit(f"install: {why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
