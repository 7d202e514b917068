"""The wrapper in a folder of its own: wrapper, helper, socket, record, and a joblensd of the test's.

The paths are compiled into the helper and written into the wrapper, so that no job can change them; the tests
do what an installation can't: they build both with paths below a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Callable

HOOKS = Path(__file__).resolve().parents[2] / "hooks"

# What a connection gets: the server's end of it, and the request packet.
Behaviour = Callable[[socket.socket, bytes], None]


def traced(connection: socket.socket, request: bytes) -> None:
    """The answer of a healthy joblensd."""
    connection.send(b"joblens/1\0traced\0level=basic\0")


class Site:
    """`folder` is short (a socket's path has at most 107 bytes); `shell` runs the wrapper, as `sh`."""

    def __init__(self, folder: Path, shell: str, record_owner: int) -> None:
        self.socket = folder / "run" / "activate.sock"
        self.record = folder / "chained_wrapper"
        self.wrapper = folder / "joblens_wrapper"
        self.helper = folder / "joblens_activate"
        self._intact = folder / "intact"
        self._patient = folder / "patient"
        self.socket.parent.mkdir()
        (folder / "sh").symlink_to(shutil.which(shell) or shell)
        self._build_helper(self._intact, f"-DJOBLENS_CHAIN_OWNER={record_owner}")
        self._build_helper(self._patient, "-DJOBLENS_BUDGET_MS=30000")
        self._write_wrapper(folder / "sh", record_owner)

    def _build_helper(self, to: Path, *definitions: str) -> None:
        paths = [f'-DJOBLENS_SOCKET="{self.socket}"', f'-DJOBLENS_CHAIN="{self.record}"']
        compiler = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", *paths, *definitions]
        subprocess.run([*compiler, str(HOOKS / "joblens_activate.c"), "-o", str(to)], check=True)

    def _write_wrapper(self, shell: Path, record_owner: int) -> None:
        text = (HOOKS / "joblens_wrapper").read_text()
        for shipped, ours in (
            ("#!/bin/sh\n", f"#!{shell}\n"),
            ("=/etc/joblens/chained_wrapper\n", f"={self.record}\n"),
            ("-user 0 ", f"-user {record_owner} "),
        ):
            assert text.count(shipped) == 1, shipped
            text = text.replace(shipped, ours)
        self.wrapper.write_text(text)
        self.wrapper.chmod(0o755)

    def reset(self) -> None:
        """No joblensd, no chained wrapper, a helper that works."""
        for path in (self.socket, self.record, self.helper):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.exists() or path.is_symlink():
                path.unlink()
        shutil.copy2(self._intact, self.helper)

    def be_patient(self) -> None:
        """A helper that also a busy machine answers in time."""
        shutil.copy2(self._patient, self.helper)

    def chain(self, text: str, mode: int = 0o644) -> None:
        """Records `text` as the wrapper that the site had before."""
        self.record.write_text(text)
        self.record.chmod(mode)

    @contextmanager
    def joblensd(self, behave: Behaviour = traced) -> Iterator[list[bytes]]:
        """A server on the socket; gives the list in which the requests arrive."""
        requests: list[bytes] = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.socket))
            self.socket.chmod(0o666)
            listener.listen(8)
            thread = threading.Thread(target=_serve, args=(listener, behave, requests))
            thread.start()
            try:
                yield requests
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()


def _serve(listener: socket.socket, behave: Behaviour, requests: list[bytes]) -> None:
    held = []  # connections stay open until the end, unless the behaviour closes them
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            break
        held.append(connection)
        requests.append(connection.recv(1 << 16))
        with suppress(OSError):  # the helper has had its 40 ms, and is gone
            behave(connection, requests[-1])
    for connection in held:
        connection.close()


def run(command: Sequence[str | bytes | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs to the end, both streams captured. The limit of a minute is there to end a wrapper that hangs."""
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, timeout=60, capture_output=True, **options)
