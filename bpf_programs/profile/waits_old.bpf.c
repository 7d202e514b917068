// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* waits.bpf.c for kernels without bpf_loop (before 5.17): user stacks by frame pointers alone, see sample_old.bpf.c. */
#define BEFORE_5_17
#include "waits.bpf.c"
