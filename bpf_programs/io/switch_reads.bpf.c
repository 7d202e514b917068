// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* switch.bpf.c for kernels without bpf_rdonly_cast (before 6.2). */
#define BY_READS
#include "switch.bpf.c"
