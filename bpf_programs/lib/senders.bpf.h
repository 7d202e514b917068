/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Who sends a signal, as signal_generate tells it. */
#ifndef JOBLENS_SENDERS_BPF_H
#define JOBLENS_SENDERS_BPF_H

#include "compat.bpf.h"

enum {
	SEND_SIG_NOINFO = 0, SEND_SIG_PRIV = 1,		/* include/linux/sched/signal.h */
	SI_USER = 0, SI_QUEUE = -1, SI_TKILL = -6,	/* include/uapi/asm-generic/siginfo.h */
};

/* Whether a process sent it: kill(2) and its kin, or cgroup.kill. A fault or a timer did not: whoever runs then has
 * nothing to do with it. */
static __always_inline bool somebody_sent(struct kernel_siginfo *info)
{
	int code;

	if ((u64)info <= SEND_SIG_PRIV)
		return (u64)info == SEND_SIG_NOINFO;
	code = BPF_CORE_READ(info, si_code);
	return code == SI_USER || code == SI_QUEUE || code == SI_TKILL;
}

#endif
