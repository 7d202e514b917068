"""What is installed is pinned: the locks cover setup.cfg, and nothing is fetched or changed unasked."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "requirements"))

import install  # noqa: E402
import locks  # noqa: E402

TAG = locks.own_tag()

needs_venv = pytest.mark.skipif(importlib.util.find_spec("ensurepip") is None, reason="this Python has no ensurepip")


@pytest.mark.parametrize("python", locks.PYTHONS)
def test_a_lock_has_what_setup_cfg_asks_for(python: str) -> None:
    entries = locks.read(locks.tag(python))
    assert all(entry.hashes for entry in entries)
    for who, lines in locks.required().items():
        versions = {canonicalize_name(entry.name): entry.version for entry in entries if who in entry.needed_by}
        for line in lines:
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            assert name in versions, f"{line}, for {who}: run make lock"
            assert requirement.specifier.contains(versions[name], prereleases=True), f"{line}: run make lock"


def test_every_extra_can_be_chosen_and_no_other() -> None:
    base = {entry.name for entry in locks.select(TAG, [])}
    assert "numpy" in base and "kafka-python" not in base
    assert "kafka-python" in {entry.name for entry in locks.select(TAG, ["kafka"])}
    with pytest.raises(locks.LockError, match=r"there is no extra kafak: there are .*kafka"):
        locks.select(TAG, ["kafak"])
    with pytest.raises(locks.LockError, match="nothing is locked for this Python"):
        locks.select("cp27", [])


def test_without_a_bundle_install_says_what_it_would_fetch_and_changes_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "condor_joblens-9-py3-none-any.whl"
    for path in (wheel, *(tmp_path / name for name in WANTED)):
        path.touch()
    target = tmp_path / "target"
    command = [
        "make",
        "install",
        f"DESTDIR={target}",
        f"wheel={wheel}",
        f"compiled={tmp_path}",
        f"PYTHON={sys.executable}",
    ]
    done = subprocess.run([*command, "EXTRAS=kafka"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = done.stderr
    assert f"install: there is no bundle for {TAG} on {platform.machine()}" in said
    assert "would be fetched from the network" in said and "make install ONLINE=yes" in said
    assert f"run make bundle PYTHONS={sys.version_info[0]}.{sys.version_info[1]} EXTRAS=kafka" in said
    for entry in locks.select(TAG, ["kafka"]):
        assert f"{entry.name} {entry.version}" in said
    assert not target.exists()


WANTED = ("joblens_activate", "joblens_python.so", "joblens_calls.so")
"""What is compiled and installed beside the wheel."""


def planned(folder: Path, *arguments: str) -> str:
    """What make would run in a tree in which nothing of that is built yet."""
    command = ["make", "--dry-run", *arguments, f"compiled={folder}", f"DESTDIR={folder / 'staged'}"]
    plan = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    return plan.stdout


def test_a_tree_in_which_a_bundle_was_made_can_be_installed(tmp_path: Path) -> None:
    looked_at = set(re.findall(r"test -f (\S+)", planned(tmp_path, "check-install")))
    assert {str(tmp_path / name) for name in WANTED} < looked_at
    plan = planned(tmp_path, "bundle")
    for name in WANTED:
        assert f"-o {tmp_path / name} " in plan, f"make install wants {name} too"


def test_all_that_is_installed_and_compiled_is_looked_at_before_anything_is_begun(tmp_path: Path) -> None:
    looked_at = set(re.findall(r"test -f (\S+)", planned(tmp_path, "check-install")))
    installed = set(re.findall(r"install -D -m \d+ (\S+) ", planned(tmp_path, "install-hooks")))
    made = {path for path in installed if not path.startswith("hooks/")}
    assert made == {str(tmp_path / name) for name in WANTED} and made < looked_at
    assert {"hooks/python/sitecustomize.py", "hooks/joblens_wrapper"} < installed


class Node:
    """A checkout whose lock has one small package, and a folder to install into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        ignored = shutil.ignore_patterns("__pycache__", "cp*.txt")
        shutil.copytree(REPOSITORY / "requirements", self.checkout / "requirements", ignore=ignored)
        shutil.copy(REPOSITORY / "setup.cfg", self.checkout)
        self.dist, self.kept = self.checkout / "dist", folder / "cache" / f"{TAG}-{platform.machine()}"
        self.dist.mkdir()
        self.kept.mkdir(parents=True)
        self.own = made_wheel(self.dist, "condor_joblens", "the product")
        self.small = made_wheel(self.kept, "small", "what it needs")
        digest = hashlib.sha256(self.small.read_bytes()).hexdigest()
        entry = locks.Entry("small", "1", frozenset({locks.BASE}), frozenset({digest}))
        (self.checkout / "requirements" / f"{TAG}.txt").write_text(entry.lines())
        self.bundle = self.dist / locks.bundle_name("1", TAG, platform.machine())
        self.python = folder / "prefix" / "bin" / "python"

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Without any network: pip's index is nowhere."""
        nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
        environment = {"PATH": os.environ["PATH"], **nowhere}
        command = [sys.executable, "-B", f"requirements/{script}.py", *arguments]
        return subprocess.run(
            command, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def install(self, step: str) -> subprocess.CompletedProcess[str]:
        return self.run("install", step, str(self.own), str(self.folder / "prefix"))


def made_wheel(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    about = f"{name}-1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        code = f"TEXT = {text!r}\n"
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        hashed = base64.urlsafe_b64encode(hashlib.sha256(code.encode()).digest()).decode().rstrip("=")
        listed = f"{name}.py,sha256={hashed},{len(code)}\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
        wheel.writestr(f"{about}/RECORD", listed)
    return path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def bundled(node: Node) -> None:
    done = node.run("bundle", str(node.own), str(node.kept.parent), "{}.{}".format(*sys.version_info[:2]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(node.bundle)


@pytest.mark.slow
@needs_venv
def test_from_a_bundle_it_is_installed_without_a_network(node: Node) -> None:
    bundled(node)
    assert node.install("check").returncode == 0
    subprocess.run([sys.executable, "-m", "venv", node.folder / "prefix"], check=True)
    done = node.install("install")
    assert done.returncode == 0, done.stderr
    script = "import condor_joblens, small; print(condor_joblens.TEXT, small.TEXT)"
    said = subprocess.run([node.python, "-I", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "the product what it needs"
    node.bundle.unlink()
    assert node.install("check").returncode == 0, "all that is pinned is there: an upgrade needs no bundle"
    assert node.install("install").returncode == 0


@pytest.mark.slow
@needs_venv
def test_what_is_there_is_not_installed_again_and_what_differs_is(node: Node) -> None:
    """Whether pip was asked shows in the time of what it puts there."""
    bundled(node)
    subprocess.run([sys.executable, "-m", "venv", node.folder / "prefix"], check=True)

    def installed() -> tuple[Path, str, float]:
        done = node.install("install")
        assert done.returncode == 0, done.stderr
        product = next((node.folder / "prefix").glob("lib/*/*/condor_joblens.py"))
        return product, product.read_text(), product.stat().st_ctime

    first = installed()
    assert installed() == first
    first[0].write_text("TEXT = 'changed'\n")
    assert installed()[1] == first[1], "a file that somebody has changed is mended"
    made_wheel(node.dist, "condor_joblens", "another build of the same version")
    assert "another build" in installed()[1]
    command = next((node.folder / "prefix").glob("lib/*/*/condor_joblens-1.dist-info/INSTALLER"))
    command.unlink()
    assert "another build" in installed()[1] and command.exists(), "a file that is missing comes back"


@pytest.mark.slow
@needs_venv
@pytest.mark.sampled(1)
@pytest.mark.parametrize("umask", [0o077, 0])
def test_whatever_umask_root_has_all_can_read_what_is_installed_and_root_alone_change_it(
    node: Node, umask: int
) -> None:
    bundled(node)
    shutil.copy(REPOSITORY / "Makefile", node.checkout)
    prefix = node.folder / "prefix"
    settings = [f"PYTHON={sys.executable}", f"PREFIX={prefix}", f"wheel={node.own}"]
    before = os.umask(umask)
    try:
        subprocess.run(["make", "install-python", *settings], cwd=node.checkout, check=True, timeout=120)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (prefix, *prefix.rglob("*")) if not path.is_symlink()}
    assert any(path.name == "small.py" for path in modes)
    assert not {path: oct(mode) for path, mode in modes.items() if mode & 0o044 != 0o044 or mode & 0o022}


@pytest.mark.slow
@needs_venv
def test_what_cannot_be_fetched_leaves_no_half_environment(node: Node) -> None:
    """The network is allowed and fails. What was there before goes on."""
    shutil.copy(REPOSITORY / "Makefile", node.checkout)
    prefix = node.folder / "prefix"
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    settings = [f"PYTHON={sys.executable}", f"PREFIX={prefix}", f"wheel={node.own}", "ONLINE=yes"]

    def make() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "install-python", *settings], cwd=node.checkout, env={"PATH": os.environ["PATH"], **nowhere},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    failed = make()
    assert failed.returncode != 0 and "pip could not install what is pinned" in failed.stderr
    assert not prefix.exists()
    bundled(node)
    assert make().returncode == 0
    node.bundle.unlink()
    listed = node.checkout / "requirements" / f"{TAG}.txt"
    listed.write_text(listed.read_text().replace("small==1", "small==2"))
    assert make().returncode != 0
    said = subprocess.run([node.python, "-I", "-c", "import small; print(small.TEXT)"], capture_output=True, text=True)
    assert said.stdout.strip() == "what it needs", "an upgrade that fails takes nothing away"


@pytest.mark.slow
@needs_venv
def test_a_bundle_in_which_somebody_has_changed_a_wheel_is_refused(node: Node) -> None:
    bundled(node)
    made_wheel(node.kept, "small", "what somebody else wants")
    with tarfile.open(node.bundle, "w") as archive:
        archive.add(node.small, node.small.name)
    done = node.install("check")
    assert done.returncode != 0 and "lacks small 1, or has them with another hash" in done.stderr
    subprocess.run([sys.executable, "-m", "venv", node.folder / "prefix"], check=True)
    assert node.install("install").returncode != 0, "pip looks too"
    assert not list((node.folder / "prefix").rglob("small.py"))


def test_pip_alone_can_install_a_bundle(node: Node) -> None:
    """Its list has the hash of everything in it."""
    bundled(node)
    with tarfile.open(node.bundle) as archive:
        files = [file for file in archive.getnames() if file.endswith(".whl")]
        listed = archive.extractfile("requirements.txt")
        assert listed is not None
        text = listed.read().decode()
    assert sorted(files) == sorted([node.own.name, node.small.name])
    for path in (node.own, node.small):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in text


def test_a_wheel_that_is_larger_than_any_can_be_is_not_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled(node)
    assert [name for name, _ in install._wheels(node.bundle)] == [node.own.name, node.small.name]
    monkeypatch.setattr(install, "LARGEST_WHEEL_BYTES", node.small.stat().st_size)
    assert [name for name, _ in install._wheels(node.bundle)] == [node.small.name]
    monkeypatch.setattr(install, "MOST_FILES", 0)
    assert list(install._wheels(node.bundle)) == []
