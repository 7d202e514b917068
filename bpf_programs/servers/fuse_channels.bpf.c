// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* fuse.bpf.c for Linux 7.2, where a request has a channel. It is an object of its own: a type that the kernel does not have
 * makes libbpf look for it in all modules, which takes CAP_SYS_ADMIN. */
#define BY_CHANNEL
#include "fuse.bpf.c"
