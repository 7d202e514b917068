"""Where the kernel keeps BPF objects under a name: what is pinned there outlives joblensd."""

from __future__ import annotations

BPFFS = "/sys/fs/bpf"

PINS = f"{BPFFS}/joblens"
"""Ours."""

BPFFS_OPTIONS = "mode=700"
"""Without this everybody may write there, and make the folder of our pins before we do."""

MOUNT_BPFFS = f"mount -t bpf -o {BPFFS_OPTIONS} bpf {BPFFS}"
REMOUNT_BPFFS = f"mount -o remount,{BPFFS_OPTIONS} {BPFFS}"
FSTAB_LINE = f"bpf {BPFFS} bpf {BPFFS_OPTIONS} 0 0"
