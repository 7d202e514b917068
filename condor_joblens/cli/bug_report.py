"""`joblens doctor --bundle FILE`: what a bug report needs, in one archive, and no secret.

It holds what doctor found, and the files and commands that it looks at: `joblens doctor --root` works with it. It holds
the ends of our logs, which name jobs. It holds no row, job ad or event: what users run is nobody's business.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
import time
from collections.abc import Iterator

from condor_joblens import __version__
from condor_joblens.cli.checks.checked_node import MACROS, REPORTED, CheckedNode
from condor_joblens.common import condor_config
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.secret_names import is_place, is_secret

FOLDER = "joblens-report"

FILES = (
    "/proc/sys/kernel/osrelease", "/proc/sys/kernel/unprivileged_bpf_disabled", "/proc/self/status", "/proc/mounts",
    "/proc/pressure/cpu", "/proc/cpuinfo", "/proc/meminfo", "/etc/os-release", "/sys/kernel/security/lockdown",
    "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/selinux/enforce",
    "/etc/joblens/chained_wrapper",
)  # fmt: skip
"""As they are. /proc/self/status is of this command: the capabilities that can be had."""

OF_JOBLENSD = ("attached", "startd", "policies.aside", "triggers.aside")
"""Files in JOBLENS_RUN_DIR that name no job."""

COMMANDS = {"condor_version": (), "condor_q": ("-allusers", "-totals"), "uname": ("-a",)}

ACCOUNTS = re.compile(r"(root|joblens[\w-]*|condor):", re.ASCII)

MOST_BYTES = 1 << 20
"""Of one file, the last."""

LEAST_HIDDEN = 5
"""Characters of a secret that is hidden wherever it stands: a shorter one is a part of many words."""

_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_MACRO = re.compile(r"[A-Za-z_][\w.]* = ")
_ASSIGNED = re.compile(r"([A-Za-z_][\w.-]*)(\s*[=:]\s*)(\S.*)")


def write(path: str, node: CheckedNode, findings: str) -> list[str]:
    """Makes the archive at `path`, mode 0600, with `findings` as doctor printed them; the names of what is in it.

    Raises JobLensError if the file can't be made, or is there already.
    """
    names = []
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise JobLensError(f"{printable(path, 200)} can't be made: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        configuration = _configuration(node)
        secrets = secrets_of(configuration)
        for name, text in [(REPORTED, findings), *_contents(node, macros_without_secrets(configuration))]:
            content = without(secrets, text).encode("utf-8", "replace")[-MOST_BYTES:]
            entry = tarfile.TarInfo(f"{FOLDER}/{name.lstrip('/')}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o644
            archive.addfile(entry, io.BytesIO(content))
            names.append(name)
    return names


def _contents(node: CheckedNode, configuration: str) -> Iterator[tuple[str, str]]:
    yield "version.txt", f"{__version__}\n"
    for path in FILES:
        if (text := _read(node, path)) is not None:
            yield path, text
    for path in ("/etc/passwd", "/etc/group"):
        lines = (_read(node, path) or "").splitlines(keepends=True)
        yield path, "".join(line for line in lines if ACCOUNTS.match(line))
    for name in OF_JOBLENSD:
        if (text := _read(node, os.path.join(node.config.run_dir, name))) is not None:
            yield f"/run/joblens/{name}", text
    for name, arguments in COMMANDS.items():
        with contextlib.suppress(JobLensError):
            yield f"commands/{name}", node.ask(name, *arguments)
    yield "commands/condor_config_val", configuration
    for log in ("JobLensdLog", "JobLensExportLog", "JobLensRelayLog", "JobLensDoorLog"):
        if (text := _read(node, os.path.join(_log_folder(node), log))) is not None:
            yield f"logs/{log}", without_secrets(text)


def _read(node: CheckedNode, path: str) -> str | None:
    try:
        return node.read(path, MOST_BYTES)
    except OSError:
        return None


def _log_folder(node: CheckedNode) -> str:
    if node.live:
        with contextlib.suppress(JobLensError):
            return node.ask("condor_config_val", "LOG").strip()
    return "/var/log/condor"


def _configuration(node: CheckedNode) -> str:
    """Our macros and those that concern us, with their sources, and no other; secrets are among them."""
    with contextlib.suppress(JobLensError):
        return node.ask("condor_config_val", *condor_config.arguments(MACROS, "-verbose"))
    return ""


def secrets_of(dump: str) -> list[str]:
    """The values of what is named like a secret: another macro, of any name, can hold the same, and be shown."""
    found = [_ASSIGNED.search(line) for line in dump.split("\n") if _MACRO.match(line)]
    values = {its[3].strip() for its in found if its and _is_hidden(its)}
    return sorted((value for value in values if len(value) >= LEAST_HIDDEN), key=len, reverse=True)


def without(secrets: list[str], text: str) -> str:
    """The text, with each of these, the longest first, as `(hidden)`."""
    for secret in secrets:
        text = text.replace(secret, "(hidden)")
    return text


def without_secrets(text: str) -> str:
    """Lines in which the value of what is named like a secret, and the user in an address, are `(hidden)`."""
    return "\n".join(_hide(_CREDENTIALS.sub("(hidden)", line)) for line in text.split("\n"))


def macros_without_secrets(dump: str) -> str:
    """What `condor_config_val -dump -verbose` prints; a hidden value is followed by its place, not by how it is set."""
    kept = []
    hidden = False
    for line in dump.split("\n"):
        if _MACRO.match(line):
            shown = without_secrets(line)
            hidden = shown != line and shown.endswith("= (hidden)")
            kept.append(shown)
        elif not hidden or not line or line.startswith(" # at: "):
            kept.append(without_secrets(line))
    return "\n".join(kept)


def _hide(line: str) -> str:
    found = _ASSIGNED.search(line)
    if found and _is_hidden(found):
        return f"{line[: found.start(3)]}(hidden)"
    return line


def _is_hidden(found: re.Match[str]) -> bool:
    return is_secret(found[1]) and not is_place(found[1]) and not os.path.isabs(found[3])
