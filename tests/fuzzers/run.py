"""Run the fuzzers, each for some seconds with the inputs that it has kept: run.py [TARGET ...]

run.py --repeat TARGET FILE gives one input to a target.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import c_programs
from targets import C_TARGETS, FOLDER, PYTHON_TARGETS, REPOSITORY, loaded, seeds

KEPT = Path(os.environ["JOBLENS_CACHE"]) / "fuzz"
SECONDS = int(os.environ.get("FUZZ_SECONDS") or 30)
ALL_SECONDS = int(os.environ.get("FUZZ_ALL_SECONDS") or 0)
"""For all fuzzers together; 0: each takes SECONDS."""

AT_A_TIME = int(os.environ.get("FUZZ_AT_A_TIME") or os.cpu_count() or 1)
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1", "-verbosity=1"]
TOLD = 25
"""Lines of what a fuzzer said that are shown if it failed; all of it is in logs/TARGET.log."""

ATHERIS = KEPT / f"atheris-{sys.implementation.cache_tag}"


def main(names: list[str]) -> int:
    """Prints a line a target; 1 where any of them found something."""
    if names[:1] == ["--repeat"]:
        return _repeat(names[1], Path(names[2]))
    wanted = names or [*C_TARGETS, *PYTHON_TARGETS]
    has_atheris = _get_atheris()
    at_a_time = AT_A_TIME if has_atheris else 1  # Hypothesis runs in this process, for one test at a time
    seconds = max(1, ALL_SECONDS * at_a_time // len(wanted)) if ALL_SECONDS else SECONDS
    print(f"Each of {len(wanted)} fuzzers takes {seconds} s. Their inputs are kept in {KEPT}/corpus", flush=True)
    print(f"{'target':20} {'inputs':>9} {'features':>8} {'kept':>6}  found", flush=True)
    with ThreadPoolExecutor(at_a_time) as pool:
        return int(any(list(pool.map(lambda name: _fuzz(name, has_atheris, seconds), wanted))))


def _get_atheris() -> bool:
    """Whether there is a wheel of it for this Python. It is in a folder of its own: nothing but this needs it."""
    if not (ATHERIS / "atheris").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        got = subprocess.run([*pip, "--target", str(ATHERIS), "atheris"], capture_output=True, text=True, check=False)
        if got.returncode:
            print(f"Atheris can't be had: {got.stderr.strip().splitlines()[-1]}")
            print(f"Hypothesis {importlib.metadata.version('hypothesis')} takes its place, without coverage")
            return False
    return True


def _fuzz(name: str, has_atheris: bool, seconds: int) -> bool:
    """Whether it found something."""
    corpus, findings = _folder("corpus", name), _folder("findings", name)
    begin = _folder("seeds", name)
    for number, seed in enumerate(seeds(name)):
        (begin / str(number)).write_bytes(seed)
    if name in PYTHON_TARGETS and not has_atheris:
        return _without_coverage(name, _folder("hypothesis", name), findings, seconds)
    words = _dictionary(name)
    limits = [*LIMITS, f"-max_total_time={seconds}", f"-artifact_prefix={findings}/", *words]
    # what was found before comes first: it is either mended or found again
    command = [*_program(name), *limits, str(corpus), str(begin), str(findings)]
    log = KEPT / "logs" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    path = os.pathsep.join([str(REPOSITORY), str(FOLDER), str(ATHERIS)])
    with open(log, "wb") as output:
        environment = {**os.environ, "PYTHONPATH": path, "UBSAN_OPTIONS": "print_stacktrace=1"}
        code = subprocess.run(command, stdout=output, stderr=output, env=environment, check=False).returncode
    said = log.read_text(errors="replace")
    inputs = re.findall(r"number_of_executed_units: (\d+)", said) or re.findall(r"^#(\d+)", said, re.M)[-1:] or ["?"]
    features = re.findall(r"\bft: (\d+)", said)[-1:] or ["?"]
    _report(name, inputs[0], features[0], corpus, code != 0)
    if code:
        found = re.findall(r"Test unit written to (\S+)", said)
        lines = [line[:160] for line in said.splitlines() if not line.startswith(("#", "INFO", "0x", "stat::"))]
        print("\n".join(lines[-TOLD:]))
        _say_how(name, found[-1] if found else str(log))
    return bool(code)


def _program(name: str) -> list[str]:
    if name in C_TARGETS:
        return [str(c_programs.make(name, KEPT / "programs" / name, c_programs.FUZZING))]
    return [sys.executable, str(FOLDER / "python_fuzzer.py"), name]


def _folder(kind: str, name: str) -> Path:
    folder = KEPT / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _dictionary(name: str) -> list[str]:
    if name in C_TARGETS:
        return []
    path = _folder("seeds", name).with_suffix(".words")
    words = ("".join(f"\\x{byte:02x}" for byte in word) for word in loaded(name).WORDS)
    path.write_text("".join(f'"{word}"\n' for word in words))
    return [f"-dict={path}"]


def _without_coverage(name: str, corpus: Path, findings: Path, seconds: int) -> bool:
    """By Hypothesis, which keeps what failed in the same folder."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
    from hypothesis.database import DirectoryBasedExampleDatabase

    target, until, count = loaded(name), time.monotonic() + seconds, 0
    parts = st.lists(st.binary(max_size=64) | st.sampled_from([*target.SEEDS, *target.WORDS]), max_size=8)

    @settings(
        max_examples=500,
        deadline=None,
        database=DirectoryBasedExampleDatabase(corpus),
        suppress_health_check=list(HealthCheck),
    )
    @given(parts.map(b"".join))
    def tried(data: bytes) -> None:
        nonlocal count
        count += 1
        last[:] = [data]
        target.check(data)

    last: list[bytes] = []
    try:
        while time.monotonic() < until:
            tried()
    except BaseException as error:
        path = findings / "crash"
        path.write_bytes(last[0])
        _report(name, str(count), "-", corpus, True)
        print(f"{type(error).__name__}: {error}")
        _say_how(name, str(path))
        return True
    _report(name, str(count), "-", corpus, False)
    return False


def _report(name: str, inputs: str, features: str, corpus: Path, failed: bool) -> None:
    kept = len(list(corpus.iterdir()))
    print(f"{name:20} {inputs:>9} {features:>8} {kept:>6}  {'a failure' if failed else 'nothing'}", flush=True)


def _say_how(name: str, path: str) -> None:
    print(f"{name} fails with {path}. Repeat it: tests/fuzz --repeat {name} {path}")
    print(f"When it is mended, keep the input: cp {path} tests/fuzzers/inputs/{name}/NAME", flush=True)


def _repeat(name: str, path: Path) -> int:
    if name in C_TARGETS:
        return subprocess.run([*_program(name), str(path)], check=False).returncode
    loaded(name).check(path.read_bytes())
    print("It does not fail.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
