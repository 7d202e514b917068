"""Write the lock files anew: the newest versions that setup.cfg allows, for each Python. `make lock` calls it.

It takes uv (UV names the program), which resolves for other Pythons than the one that runs, and the network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import locks
import tomllib

HEAD = """# What `make install` brings to a node with Python {python}. `make lock` writes this file.
# Hashes are those of wheels for Linux on {machines}.
"""


def main() -> None:
    """All Pythons, one after the other."""
    required = locks.required()
    for python in locks.PYTHONS:
        everything = _resolved(python, sorted({line for lines in required.values() for line in lines}), "")
        pins = "".join(f"{name}=={package['version']}\n" for name, package in everything.items())
        wheels = [_resolved(python, sorted(everything), pins, machine) for machine in locks.MACHINES]
        needed_by: dict[str, set[str]] = {name: set() for name in everything}
        for who, lines in required.items():
            for name in _resolved(python, lines, pins):
                needed_by[name].add(who)
        entries = [
            locks.Entry(name, package["version"], frozenset(needed_by[name]), _hashes(python, name, wheels))
            for name, package in everything.items()
        ]
        head = HEAD.format(python=python, machines=" and ".join(locks.MACHINES))
        target = locks.path(locks.tag(python))
        target.write_text(head + "".join(entry.lines() for entry in entries), encoding="ascii")
        print(f"{target.name}: {len(entries)} packages")


def _resolved(python: str, requirements: list[str], pins: str, machine: str = locks.MACHINES[0]) -> dict[str, Any]:
    """Packages by name, in order: all that these requirements bring, in the versions of `pins` if there are any.

    They have the wheels for this kind of machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, constraints, found = (Path(folder, name) for name in ("in", "pins", "pylock.toml"))
        given.write_text("\n".join(requirements))
        constraints.write_text(pins)
        options = ["--only-binary", ":all:", "--format", "pylock.toml", "--quiet", "--python-version", python]
        files = ["-c", str(constraints), "-o", str(found), str(given)]
        command = [
            os.environ.get("UV", "uv"),
            "pip",
            "compile",
            *options,
            "--python-platform",
            f"{machine}-manylinux_2_{locks.GLIBC_MINOR}",
            *files,
        ]
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit(f"lock: uv could not resolve for Python {python}: it says why above")
        packages = tomllib.loads(found.read_text())["packages"]
    return {package["name"]: package for package in packages}


def _hashes(python: str, name: str, wheels: list[dict[str, Any]]) -> frozenset[str]:
    """Of the package's wheels for this Python; `wheels`: what was resolved for each kind of machine."""
    found: set[str] = set()
    for machine, packages in zip(locks.MACHINES, wheels):
        package = packages.get(name, {"wheels": []})
        fitting = {wheel["hashes"]["sha256"] for wheel in package["wheels"] if _fits(_file(wheel), python, machine)}
        if not fitting:
            sys.exit(f"lock: {name} has no wheel for Python {python} on {machine}")
        found |= fitting
    return frozenset(found)


def _file(wheel: Any) -> str:
    return str(wheel.get("name") or wheel["url"].rpartition("/")[2])


def _fits(file: str, python: str, machine: str) -> bool:
    pythons, abis, tags = (part.split(".") for part in file.removesuffix(".whl").split("-")[-3:])
    minor = int(python.partition(".")[2])
    stable = "abi3" in abis and any(name.startswith("cp3") and int(name[3:] or 0) <= minor for name in pythons)
    own = locks.tag(python) in pythons and (locks.tag(python) in abis or "none" in abis)
    plain = "none" in abis and bool({"py3", f"py3{minor}"} & set(pythons))
    return (stable or own or plain) and ("any" in tags or bool(set(locks.platforms(machine)) & set(tags)))


if __name__ == "__main__":
    main()
