"""Secrets are read from files, when they are needed: never from the configuration, which everybody may dump."""

from __future__ import annotations

import os
import stat

from condor_joblens.common.errors import JobLensError

_MOST = 65536


def path(value: str) -> str:
    """A knob's parser: the absolute path of a file with a secret, or nothing. Raises ValueError."""
    if value and not os.path.isabs(value):
        raise ValueError("the absolute path of a file")
    return value


def read(file: str) -> str:
    """The secret in a file, without the end of its line. Raises JobLensError, never with the secret in it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise JobLensError(f"{file}: {error.strerror}: put the secret there, chgrp joblens and chmod 640 it") from None
    with open(descriptor, encoding="utf-8") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise JobLensError(f"{file} is no plain file: name one that has the secret in it")
        if status.st_mode & 0o007:
            raise JobLensError(f"{file} may be read or written by everybody: chgrp joblens and chmod 640 it")
        try:
            found = opened.read(_MOST).rstrip("\r\n")
        except UnicodeDecodeError:
            raise JobLensError(f"{file} is not UTF-8 text: write the secret into it anew") from None
    if not found:
        raise JobLensError(f"{file} is empty: write the secret into it")
    return found
