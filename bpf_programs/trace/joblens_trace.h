/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What level trace is told and tells of calls: plain declarations, as in lib/joblens.h.
 */
#ifndef JOBLENS_TRACE_H
#define JOBLENS_TRACE_H

#include "joblens_exceptions.h"

enum { TRACED_FUNCTIONS = 32, TRACED_POINTS = 4096, TRACED_ARGUMENTS = 6, TRACED_TEXTS = 2, TRACED_TEXT_BYTES = 64 };

/* Where in a function a probe lies. */
enum traced_kind {
	TRACED_ENTRY,	/* its first instruction */
	TRACED_RETURN,
	TRACED_LEAVE,	/* a jump out of it: to another function, which returns in its place */
	TRACED_JUMP,	/* a jump to an address that is in a register or in memory: it leaves if that is outside */
	TRACED_OFF,	/* no probe: the function is called too often, and is not looked at from here on */
	TRACED_TRIAL,	/* of who attaches probes, in his own process: does it work, and what does a hit cost? */
	TRACED_COMMAND,	/* the first instruction of what executes a command in bash */
	TRACED_SHELL_END,	/* and of what ends a bash */
};

enum { TRACED_NO_REGISTER = 255 };	/* of a TRACED_JUMP, whose registers are words of struct pt_regs */

/* One probe. Distances are from its instruction. */
struct traced_point {
	__u32 function;
	__u32 kind;
	__u8 base, index, scale, is_memory;	/* of a TRACED_JUMP: [base + index * scale + displacement], or base */
	__s32 displacement;	/* of an address that is relative to the instruction's end: from its beginning */
	__s32 main_start, main_end;	/* the function */
	__s32 cold_start, cold_end;	/* what the compiler has put elsewhere of it; equal: nothing */
};

/* One function; the last element is that of trials. */
struct traced_function {
	__u64 hits;	/* of its probes, since it is looked at */
	__u64 not_ours;	/* in tasks that are not the job owner's alone */
	__u64 lost;	/* records of all functions for which the ring had no room: of the last element alone */
	__u64 off_ns;	/* CLOCK_MONOTONIC, when it was switched off; 0: it is not */
	__u64 window;	/* number of the piece of time in which it was hit last */
	__u64 level;	/* hits that are not forgotten so far */
	__u64 allowed;	/* so many they may be */
	__u32 texts;	/* a bit for each argument that is the address of a text */
	__u32 forgotten;	/* so many in each piece of time */
	__u64 has_arguments;	/* 0: nobody looks at more than the first value of its entries */
	__u64 cgroup;	/* number of one of the job's: of the last element alone */
};

/* The name of a function, for the flight recorder. */
struct traced_name {
	__u32 bytes;
	char text[192];	/* RECORDED_TEXT_BYTES */
};

/* One hit. Behind it come the texts, of an entry that has any. All but the first value are left out, or none is. */
struct traced_hit {
	__u64 time_ns;	/* CLOCK_MONOTONIC */
	__u64 stack;	/* where the return address is */
	__u64 lost;	/* until then */
	__u32 pid, tid;	/* in the agent's pid namespace; 0: not there */
	__u32 function;
	__u32 kind;	/* enum traced_kind: never TRACED_JUMP */
	__u32 texts;	/* a bit for each text that was read */
	__u32 thread;	/* in the kernel's own pid namespace */
	__u64 values[6];	/* of an entry: what is in the registers for arguments; of a return: the result is the first */
};

enum { TRACED_SHORT_BYTES = 56 };	/* of a hit that has but one value */

/* What a C++ program throws, at the entry of __cxa_throw. */
struct traced_throw {
	struct traced_hit hit;	/* of the values, the first are the address of the object and that of its type */
	__u64 instruction;
	__u64 frame;	/* the frame pointer, if it is one */
	struct cxx_exception exception;
	__u32 stack_bytes;
	__u32 unused;
	char stack[12288];	/* from the stack pointer on */
};

struct traced_texts {
	struct traced_hit hit;
	char text[2][64];
};

/* How a hit lies in the ring of calls. What follows it begins behind the bytes that it has. */
struct traced_record {
	__u64 bytes;	/* all of it, in eights; 0: it is being written */
	struct traced_texts told;	/* or less */
};

/* Hits of functions until they are taken. Both counts go on for ever. A record lies where the first of its bytes belongs,
 * and is never cut in two: so the last one may go beyond the ring's end. Who has taken it sets it to 0. */
struct traced_ring {
	__u64 given;	/* bytes of all records that were begun */
	__u64 unused[7];	/* a cache line each: others write what is below */
	__u64 taken;	/* of those that are not needed any more */
	__u64 unused_too[7];
	char records[1048832];	/* TRACED_RING_BYTES, and what the last one may need more */
};

enum { TRACED_RING_BYTES = 1048576 };

enum { TRACED_WORDS = 32, TRACED_SCRIPT_BYTES = 96, TRACED_LINE_BYTES = 384, TRACED_WORD_BYTES = 256 };

/* Variables of a bash: how far from the probe of TRACED_COMMAND; 0: this bash has none of that name. */
struct traced_shell {
	__s64 status;	/* last_command_exit_value */
	__s64 trap;	/* running_trap */
	__s64 breaking, continuing;
	__s64 script;	/* dollar_vars, whose first is $0 */
	__s64 both;	/* the first byte of breaking and continuing, if they lie beside each other: these are 0 then */
};

enum traced_command_how {
	TRACED_IN_BACKGROUND = 1,
	TRACED_FROM_PIPE = 2,
	TRACED_INTO_PIPE = 4,
	TRACED_SKIPPED = 8,	/* by break or continue: it is not executed */
	TRACED_CUT = 16,	/* there are more words, or the last one goes on */
	TRACED_UNREADABLE = 32,	/* a part of it was not in memory */
};

/* A command that bash begins, or its end. */
struct traced_command {
	__u64 time_ns;	/* CLOCK_MONOTONIC */
	__u64 stack;	/* where the return address is */
	__u64 top;	/* the highest one of the shell's hits since the last one that was told, and of this one */
	__u64 image;	/* where the program is in memory */
	__u32 pid;	/* in the agent's pid namespace; 0: not there */
	__u32 function;
	__u32 kind;	/* enum traced_kind */
	__u32 untold;	/* hits of this shell that were counted alone, until then */
	__s32 status;	/* of the command before; at the end that of the shell */
	__s32 line;	/* of a simple command, from here on */
	__u32 type;	/* enum command_type of bash: 4 is a simple command */
	__u32 flags;	/* CMD_... of bash */
	__u32 trap;	/* 0: none is run; else the number of its signal + 1 */
	__u32 how;	/* bits of enum traced_command_how */
	__u32 script_bytes, bytes;	/* of $0, and of all: each text has a 0 behind it; 0: $0 is not known */
	char text[736];	/* $0 and the words: the most of each, together; of a simple command alone */
};

/* Which trace has put a thread's last hit into the flight recorder, by program: each has records of its own kind. */
enum traced_program { TRACED_CALLS, TRACED_THROWS, TRACED_SHELLS, TRACED_PROGRAMS };

struct traced_recorded {
	struct { __u64 instruction, trace; } last[3];	/* trace 0: another one has seen it too, or there is none */
};

/* How much the shells of a trace may tell. */
struct traced_telling {
	__s64 left;	/* so many records; of what comes then all is counted, and nothing told */
	__u64 commands;	/* simple ones that were counted alone */
};

#endif
