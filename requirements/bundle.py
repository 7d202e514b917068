"""Make an archive of all wheels that a node needs, for nodes without a network: `make bundle` calls it.

    bundle.py WHEEL FOLDER PYTHON,... [EXTRA,...]

WHEEL is the product's. A bundle for each Python is left in its folder; FOLDER keeps what was downloaded. In a bundle
are the wheels and `requirements.txt`, with which pip alone can install them too.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import locks


def main(wheel: str, folder: str, pythons: str, extras: str = "") -> None:
    """Prints the bundles' paths."""
    machine = platform.machine()
    try:
        for python in pythons.split(","):
            entries = locks.select(locks.tag(python), [extra for extra in extras.split(",") if extra])
            kept = Path(folder) / f"{locks.tag(python)}-{machine}"
            kept.mkdir(parents=True, exist_ok=True)
            print(_pack(Path(wheel), _fetched(python, machine, entries, kept), entries, locks.tag(python), machine))
    except locks.LockError as error:
        sys.exit(f"bundle: {error}")


def digest(path: Path) -> str:
    """A file's SHA-256 in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fetched(python: str, machine: str, entries: Sequence[locks.Entry], kept: Path) -> list[Path]:
    """The wheel of each entry, from this folder or the network."""
    found = _wheels(entries, kept)
    if len(found) < len(entries):
        listed = kept / "requirements.txt"
        listed.write_text("".join(entry.lines() for entry in entries), encoding="ascii")
        tags = [option for name in locks.platforms(machine) for option in ("--platform", name)]
        abis = [option for name in (locks.tag(python), "abi3", "none") for option in ("--abi", name)]
        target = ["--python-version", python, "--implementation", "cp", *abis, *tags]
        checked = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", str(listed), "-d", str(kept)]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        if subprocess.run([*pip, *target, *checked], check=False).returncode != 0:
            sys.exit("bundle: pip could not download what is pinned: it says why above")
        found = _wheels(entries, kept)
    return found


def _wheels(entries: Sequence[locks.Entry], folder: Path) -> list[Path]:
    pinned = {each for entry in entries for each in entry.hashes}
    return sorted(path for path in folder.glob("*.whl") if digest(path) in pinned)


def _pack(own: Path, wheels: Sequence[Path], entries: Sequence[locks.Entry], python_tag: str, machine: str) -> Path:
    version = own.name.split("-")[1]
    target = own.parent / locks.bundle_name(version, python_tag, machine)
    ours = locks.Entry("condor_joblens", version, frozenset({locks.BASE}), frozenset({digest(own)}))
    listed = "".join(entry.lines() for entry in (*entries, ours)).encode()
    unfinished = target.with_suffix(".new")
    with tarfile.open(unfinished, "w") as archive:
        about = tarfile.TarInfo("requirements.txt")
        about.size = len(listed)
        archive.addfile(about, BytesIO(listed))
        for path in (own, *wheels):
            archive.add(path, path.name)
    unfinished.rename(target)
    return target


if __name__ == "__main__":
    main(*sys.argv[1:])
