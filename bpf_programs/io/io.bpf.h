/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps of level io, and what a system call's number and arguments say. */
#ifndef JOBLENS_IO_BPF_H
#define JOBLENS_IO_BPF_H

#include "slots.bpf.h"
#include "mapped_array.bpf.h"
#include "call_arguments.bpf.h"
#include "joblens_io.h"
#include "syscalls.h"

MAPPED_ARRAY(jl_io_counters, struct io_counters);	/* rows × CPUs */
MAPPED_ARRAY(jl_io_running, struct io_running);	/* CPUs */
MAPPED_ARRAY(jl_io_waiting, struct io_waiting);	/* threads */
MAPPED_ARRAY(jl_io_node, struct io_node);	/* one */

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winitializer-overrides"
enum { ERRNOS = 134 };

/* What does not change after the load: all of an object's .rodata, at whose beginning the loader writes `cpus`. */
struct io_constants { u32 cpus; u8 calls[CALLS]; u8 errors[ERRNOS]; };

const volatile struct io_constants constants = {
	.cpus = 1,
	.calls = { [0 ... CALLS - 1] = CALL(CALL_OTHER, NONE), CALLS_OF_ARCHITECTURE },
	.errors = { [0 ... ERRNOS - 1] = ERROR_OTHER, ERRORS_BY_NUMBER },
};
#pragma clang diagnostic pop

/* Class and kind of a call, as in the table above. */
static __always_inline u32 call_of(u64 number)
{
	return number < CALLS ? constants.calls[number] : CALL(CALL_OTHER, NONE);
}

#endif
