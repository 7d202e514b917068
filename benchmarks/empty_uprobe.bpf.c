// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A program that does nothing, at a probe of a function: what the kernel takes for having any there. */
#include "../bpf_programs/lib/compat.bpf.h"

SEC("uprobe")
int empty_uprobe(void *ctx) { return 0; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
