/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a system call does with its arguments, and where they are at its end. */
#ifndef JOBLENS_CALL_ARGUMENTS_BPF_H
#define JOBLENS_CALL_ARGUMENTS_BPF_H

#include "compat.bpf.h"

enum { CALLS = 512 };	/* numbers that the table of io/syscalls.h has */

/* What a call does with its arguments and its result. */
enum call_kind {
	NONE,
	READS, WRITES,		/* of the file argument 0; the result is bytes */
	COPIES,			/* to file 0 from file 1 */
	SPLICES,		/* from file 0 to file 2 */
	OPENS, OPENS_AT,	/* path 0, or path 1 from folder 0; the result is a file */
	FORKS,			/* returns twice */
	FD, PATH, PATH_AT,	/* about a file, named as above */
	SENDS, MESSAGES, SOCKET,	/* about a socket; the result is bytes, messages, something else */
	AIO,
};

/* REGISTER(regs, member) is the including program's way to read one. */
#if defined(__TARGET_ARCH_x86)
#define CALL_NUMBER(regs) ((u64)REGISTER(regs, orig_ax))
#define ARGUMENT_0(regs) REGISTER(regs, di)
#define ARGUMENT_1(regs) REGISTER(regs, si)
#define ARGUMENT_2(regs) REGISTER(regs, dx)
#define ARGUMENT_3(regs) REGISTER(regs, r10)
#define ARGUMENT_4(regs) REGISTER(regs, r8)
/* __USER32_CS, of the machine and under Xen */
#define IS_32_BIT(regs) (REGISTER(regs, cs) == 0x23 || REGISTER(regs, cs) == 0xe023)
#elif defined(__TARGET_ARCH_arm64)
#define CALL_NUMBER(regs) ((u64)(s64)REGISTER(regs, syscallno))
#define ARGUMENT_0(regs) REGISTER(regs, orig_x0)
#define ARGUMENT_1(regs) REGISTER(regs, regs[1])
#define ARGUMENT_2(regs) REGISTER(regs, regs[2])
#define ARGUMENT_3(regs) REGISTER(regs, regs[3])
#define ARGUMENT_4(regs) REGISTER(regs, regs[4])
#define IS_32_BIT(regs) (REGISTER(regs, pstate) & 0x10)	/* PSR_MODE32_BIT */
#endif

#endif
