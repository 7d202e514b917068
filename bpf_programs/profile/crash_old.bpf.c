// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* crash.bpf.c for kernels without bpf_loop (before 5.17): user stacks by frame pointers alone, see sample_old.bpf.c. What
 * was thrown is not looked for. */
#define BEFORE_5_17
#include "crash.bpf.c"
