// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A program that does nothing, at the end of the kernel's function for writes. */
#include "../bpf_programs/lib/compat.bpf.h"

SEC("fexit/vfs_write")
int empty_write(void *ctx) { return 0; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
