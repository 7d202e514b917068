"""The job's ad as the policies get it: what the startd holds, laid over the file that the job's user could replace.

Of two lines with the same name the later one counts, so what the startd holds is appended. It also bounds: the cores of
a slot bound RequestCpus. The job's own expression then goes on under another name, within that bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_joblens.policy.job_identity import MAX_STRING, Identity, literals
from condor_joblens.startd.startd_answers import SlotJob

SAME = ("GlobalJobId", "ClusterId", "ProcId", "JobUniverse")
"""Attributes that the startd has from the schedd, and the job's ad has too."""

BOUNDS = {"RequestCpus": "Cpus", "RequestMemory": "Memory", "RequestGPUs": "GPUs"}
"""What a job asks for -> what its slot has, which is no less."""

OWN = "JobLensOwn"
"""What stands before the name of an attribute whose expression is bounded."""

_NUMBER = re.compile(rb"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")


@dataclass(frozen=True)
class Truth:
    """What is known of a slot's job from its startd."""

    identity: Identity  # who the job is
    lines: bytes  # to lay over the job's ad


@dataclass(frozen=True)
class Overlaid:
    """A job's ad under what the startd holds."""

    ad: bytes
    contradictions: tuple[str, ...]  # attributes of the file that can't be the starter's


def truth_of(job: SlotJob, startds_lines: bytes) -> Truth | None:
    """What the startd holds of the slot's job; None if it names none. `startds_lines` are the site's attributes."""
    held = literals(job.ad)
    if "GlobalJobId" not in held:
        return None
    identity = {name: held[name] for name in SAME if name in held}
    for name in ("NumShadowStarts", "NumJobStarts"):
        if name in literals(startds_lines):
            identity[name] = held[name]
    users = _users(job.ad)
    if users:
        identity["User"], identity["Owner"] = users[0], _owners(users)[0]
    lines = [_line(name, value) for name, value in identity.items()]
    group = _text(job.ad, b"AccountingGroup")
    lines.append(_line("AccountingGroup", group) if group else b"AccountingGroup = undefined\n")
    return Truth(identity, b"\n" + startds_lines + b"".join(lines))


def lay_over(ad: bytes, job: SlotJob, truth: Truth) -> Overlaid:
    """`ad`, the bytes of `.job.ad`, under what the startd holds. Linear in its length."""
    ad = ad.replace(b"\0", b"")  # as policy/jobad.py reads it: a name may be broken by one
    says = literals(ad)
    wrong = [name for name in SAME if name in truth.identity and says.get(name) != truth.identity[name]]
    users = _users(job.ad)
    owners = _owners(users)
    if owners and "Owner" in says and str(says["Owner"]).partition("@")[0] not in owners:
        wrong.append("Owner")
    if users and "User" in says and says["User"] not in users:
        wrong.append("User")
    lines = [truth.lines]
    group = _group(job.ad, owners)
    written = _text(ad, b"AcctGroup")
    if written and not _is_group(written, _text(job.ad, b"AccountingGroup")):
        wrong.append("AcctGroup")
        written = ""
    if not written and (group or b"acctgroup" in ad.lower()):
        lines.append(_line("AcctGroup", group) if group else b"AcctGroup = undefined\n")
    for name, of_slot in BOUNDS.items():
        bound = _last(job.ad, of_slot.encode())
        if bound is not None and _NUMBER.fullmatch(bound):
            line, is_beyond = _bounded(ad, name, bound)
            lines.append(line)
            wrong += [name] if is_beyond else []
    return Overlaid(ad + b"".join(lines), tuple(wrong))


def _bounded(ad: bytes, name: str, bound: bytes) -> tuple[bytes, bool]:
    """The line that keeps attribute `name` within `bound`, and whether a number in the ad is beyond it."""
    if name.lower().encode() not in ad.lower():
        return b"", False
    written = _last(ad, name.encode())
    if written is not None and _NUMBER.fullmatch(written):
        is_beyond = float(written) > float(bound)
        return b"%s = %s\n" % (name.encode(), bound if is_beyond else written), is_beyond
    if not written:  # an odd line, which other readers may understand
        return b"%s = %s\n" % (name.encode(), bound), False
    own = OWN.encode() + name.encode()
    return b"%s = %s\n%s = min({%s, %s})\n" % (own, written, name.encode(), own, bound), False


def _last(ad: bytes, name: bytes) -> bytes | None:
    """What is written of an attribute, in its last line; None if there is none."""
    # blanks at the ends are not the expression's concern: each has many ways to match a line that is nothing but blanks
    found = re.findall(rb"^[ \t]*" + name + rb"[ \t]*=([^\r\n]*)\r?$", ad, re.MULTILINE | re.IGNORECASE)
    return found[-1].strip(b" \t") if found else None


def _text(ad: bytes, name: bytes) -> str:
    """The plain text of an attribute's last line; empty if it is no such."""
    last = _last(ad, name)
    if last is None or not re.fullmatch(rb'"[^"\\]{0,1024}"', last):
        return ""
    return last[1:-1].decode(errors="replace")


def _users(ad: bytes) -> list[str]:
    """The job's User by a slot's ad, alice@pool: RemoteUser is the job's, RemoteOwner the claim's; they can differ."""
    found = [_text(ad, name)[:MAX_STRING] for name in (b"RemoteUser", b"RemoteOwner")]
    users = [name[len("nice-user.") :] if name.startswith("nice-user.") else name for name in found]
    return [user for user in users if user.partition("@")[0]]


def _owners(users: list[str]) -> list[str]:
    return [user.partition("@")[0] for user in users]


def _group(ad: bytes, owners: list[str]) -> str:
    """The job's AcctGroup; empty if it has none, of which the startd says nothing."""
    whole = _text(ad, b"AccountingGroup").partition("@")[0]
    for owner in owners:
        if whole == owner:
            return ""
        if whole.endswith(f".{owner}"):
            return whole[: -len(owner) - 1]
    return whole.rpartition(".")[0]


def _is_group(written: str, accounting_group: str) -> bool:
    """Whether a job of this AcctGroup can have this AccountingGroup, which is group.user@domain."""
    whole = accounting_group.rpartition("@")[0] or accounting_group
    return whole == written or whole.lower().startswith(f"{written.lower()}.")


def _line(name: str, value: object) -> bytes:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return f"{name} = {text}\n".encode()
