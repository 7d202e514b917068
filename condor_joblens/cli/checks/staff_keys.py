"""The keys of the site's staff (JOBLENS_STAFF_KEYS): whether joblensd takes the file, and whose they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from condor_joblens.cli.checks.checked_node import CheckedNode, Finding, fail, ok, warn
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.trusted_folder import changeable_by
from condor_joblens.control.staff import MOST_BYTES, parse_staff

_DOCS = 'docs/admin.md, "Staff"'


def staff_keys(node: CheckedNode) -> Iterator[Finding]:
    """joblensd reads the file at each command, and takes no key of it if anything is wrong."""
    path = node.config.staff_keys
    if not node.exists(path):
        yield ok(f"{path} is not there: nobody of the staff has a key here")
        return
    refused = [*_refused(node, path)]
    if refused:
        yield from refused
        return
    text = node.read(path, MOST_BYTES + 1) or ""
    try:
        if len(text.encode("utf-8", "replace")) > MOST_BYTES:
            raise JobLensError(f"{path} has more than {MOST_BYTES} bytes")
        people = sorted(person.name for person in parse_staff(text).values())
    except JobLensError as error:
        yield fail(f"no key of the staff counts: {error}", f"mend {path}: {_DOCS}")
        return
    if people and not node.config.remote_commands:
        what = f"{path} has keys, and JOBLENS_REMOTE_COMMANDS is false: none of them is good for anything"
        yield warn(what, f"set it to true, then joblens restart: {_DOCS}")
    else:
        yield ok(f"{path} has keys of: {', '.join(people) or 'nobody'}")


def _refused(node: CheckedNode, path: str) -> Iterator[Finding]:
    """Why joblensd does not read it (control/staff.py)."""
    status = os.lstat(node.path(path))
    what = f"no key of the staff counts: {path}"
    if not stat.S_ISREG(status.st_mode) or status.st_uid != node.administrator:
        yield fail(f"{what} is no file of root's", f"make it a file, and chown root {path}")
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield fail(f"{what} may be written by others than its owner", f"chmod 644 {path}")
    elif not status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield fail(f"{what} can't be read by joblensd, which is not root", f"chmod 644 {path}")
    elif node.live and (strangers := changeable_by(os.path.dirname(path))):
        yield fail(f"{what} is not taken: {strangers}", "let root alone write the folders above it")
