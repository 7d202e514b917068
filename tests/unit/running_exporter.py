"""joblens-export as a process, and its page."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

# where the tests are run by root, the user joblens could not read their folder
AS_WE_ARE = "from condor_joblens.common import privilege\nprivilege.service_ids = lambda: None\n"


class Exporter:
    """joblens-export with a condor_config_val of its own; by whoever runs the tests, even if that is root."""

    def __init__(self, folder: Path, module: str = "condor_joblens.export") -> None:
        self.folder, self.module = folder, module
        self.macros = {"LOG": str(folder), "JOBLENS_RUN_DIR": str(folder)}
        self.log = folder / "JobLensExportLog"
        program = folder / "bin" / "condor_config_val"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec cat {folder}/macros\n")
        program.chmod(0o755)
        (folder / "sitecustomize.py").write_text(AS_WE_ARE)
        self.process: subprocess.Popen[str] | None = None

    def configure(self, **macros: str) -> None:
        self.macros.update(macros)
        lines = "".join(f"{name} = {value}\n" for name, value in self.macros.items())
        (self.folder / "macros").write_text(lines)

    def start(self) -> None:
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": f"{self.folder}:{REPOSITORY}",
        }
        command = [sys.executable, "-m", self.module]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def until_logged(self, expected: str) -> str:
        while not (self.log.exists() and expected in self.log.read_text()):
            assert self.process and self.process.poll() is None, self.process and self.process.communicate()
            time.sleep(0.02)
        return self.log.read_text()

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now, and that the kernel gives to no client meanwhile."""
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(10_000, first_of_clients if first_of_clients > 10_000 else 32_768)
    while True:
        port = random.SystemRandom().choice(ports)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())
