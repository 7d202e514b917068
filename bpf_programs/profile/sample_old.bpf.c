// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* sample.bpf.c for kernels without bpf_loop (before 5.17), whose verifier takes no search for rules and for functions of
 * Python: user stacks by frame pointers alone. */
#define BEFORE_5_17
#include "sample.bpf.c"
