/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps of level io, and what a system call's number and arguments say. */
#ifndef JOBLENS_IO_BPF_H
#define JOBLENS_IO_BPF_H

#include "slots.bpf.h"
#include "joblens_io.h"
#include "syscalls.h"

#define IO_MAP(name, type_of_value)				\
	struct {						\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(map_flags, BPF_F_MMAPABLE);		\
		__uint(max_entries, 1);				\
		__type(key, u32);				\
		__type(value, type_of_value);			\
	} name SEC(".maps")

IO_MAP(jl_io_counters, struct io_counters);	/* rows × CPUs */
IO_MAP(jl_io_running, struct io_running);	/* CPUs */
IO_MAP(jl_io_waiting, struct io_waiting);	/* threads */
IO_MAP(jl_io_node, struct io_node);	/* one */

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

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winitializer-overrides"
enum { CALLS = 512, ERRNOS = 134 };

/* What does not change after the load: all of an object's .rodata, at whose beginning the loader writes `cpus`. */
struct io_constants { u32 cpus; u8 calls[CALLS]; u8 errors[ERRNOS]; };

const volatile struct io_constants constants = {
	.cpus = 1,
	.calls = { [0 ... CALLS - 1] = CALL(CALL_OTHER, NONE), CALLS_OF_ARCHITECTURE },
	.errors = { [0 ... ERRNOS - 1] = ERROR_OTHER, ERRORS_BY_NUMBER },
};
#pragma clang diagnostic pop

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

/* Class and kind of a call, as in the table above. */
static __always_inline u32 call_of(u64 number)
{
	return number < CALLS ? constants.calls[number] : CALL(CALL_OTHER, NONE);
}

#endif
