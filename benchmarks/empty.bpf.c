// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Programs that do nothing, on the hooks of levels io and profile: what the kernel takes for having any there. */
#include "../bpf_programs/lib/compat.bpf.h"

SEC("tp_btf/sys_exit")
int empty_exit(void *ctx) { return 0; }

SEC("tp_btf/sched_switch")
int empty_switch(void *ctx) { return 0; }

SEC("perf_event")
int empty_clock(void *ctx) { return 0; }

char LICENSE[] SEC("license") = "Dual BSD/GPL";
