/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What level profile counts and keeps: plain declarations, as in lib/joblens.h.
 */
#ifndef JOBLENS_PROFILE_H
#define JOBLENS_PROFILE_H

#include "joblens_exceptions.h"

enum { SAMPLE_KERNEL_FRAMES = 32, SAMPLE_USER_FRAMES = 255, SAMPLE_PYTHON_FRAMES = 128 };

enum sample_flags {
	SAMPLE_GUESSED = 1,	/* a user frame was found by a frame pointer, for want of a rule */
	SAMPLE_WHOLE = 2,	/* the last user frame has no caller, or there is no user frame and none was to be */
	SAMPLE_ASKS = 4,	/* an address of it is in no mapping that is known: it is time to look at the process */
	SAMPLE_PYTHON_CUT = 8,	/* functions of Python lack their outermost callers */
	SAMPLE_WAITED = 16,	/* it was off the CPU: a call that ends now has waited */
	SAMPLE_CRASH = 32,	/* no sample: what the thread did when a signal killed its process */
	SAMPLE_NOT_OURS = 64,	/* such a process is not the owner's alone, or may not be dumped: nothing was looked at */
	SAMPLE_MEMORY = 128,	/* no sample: struct told_memory, ahead of the crash that it belongs to */
	SAMPLE_EXCEPTION = 256,	/* the same with struct told_exception */
	SAMPLE_NO_RULES = 512,	/* this kernel can't unwind by tables, nor find functions of Python */
	SAMPLE_BY_FILE = 1024,	/* of the process nothing is known; the file of the leaf is, as others have it as well */
};

/* Of what a sample has waited in: the number of the call, and above that one more than the class of the file, or 0. */
enum { WAITED_CLASS_SHIFT = 16 };

/* A user frame: an address, or, with FRAME_IN_FILE, a file's number << 32 and an offset in it. The leaf's is where it
 * was; a caller's is that of the last byte of its call. */
enum { FRAME_FILE_SHIFT = 32, FRAME_FILE_BITS = 31 };

/* Which program in which process: an id that is used again, and an exec, make another one. */
struct process_key {
	__u32 tgid;	/* in the kernel's own pid namespace */
	__u32 exec;	/* self_exec_id of struct task_struct */
	__u64 start_ns;	/* of the process */
};

/* A frame of Python has two words: its code object's address, in whose lowest bits these can be; and which code object
 * that is, above what it has as its instruction: bytes from the code object on, or before 3.11 from its first instruction.
 *
 * Names are read later, and by then another one can be at that address. So 32 bits are made of what names it and its lines
 * (python_identity of profile/python.bpf.h); 0: it could not be read. */
enum { PYTHON_LAST_OF_CALL = 1, PYTHON_CODE_BITS = 7 };	/* the last one of a call of the interpreter from C */
enum { PYTHON_IDENTITY_SHIFT = 32 };
#define PYTHON_NO_PLACE 0x80000000U	/* of an instruction that is far from its code object */

/* One sample. Behind it come kernel_frames and user_frames words, and two for each of python_frames, each the innermost
 * first. */
struct sample {
	__u64 run;	/* what the agent has called the slot's run */
	struct process_key process;
	__u32 pid, tid;	/* in the agent's pid namespace; 0: not there */
	__u32 flags;	/* enum sample_flags */
	__u16 kernel_frames, user_frames;
	char thread[16];
	__u32 python_frames;
	__u32 waited_in;	/* as above; with SAMPLE_CRASH, the signal */
	__u64 waited_ns;	/* what this stack stands for: its own wait, or others as well; else 0 */
};

/* One slot, as the agent wants it: nobody else has this map. */
struct profiled {
	__u64 run;	/* 0: it is not sampled */
	__u32 uid;	/* of the job's owner */
	__u32 wait_stacks;	/* of its waits each CPU takes so many stacks a second */
	__u64 asked_ns;	/* when a process of it was last asked for */
	__u64 began_ns;	/* CLOCK_MONOTONIC; what it waited before does not count */
	__u64 crashed_ns;	/* when a crash of it was last told */
};

/* What was counted of a slot; the reader of samples has this map, too. */
struct sampled {
	__u64 run;	/* whose numbers these are */
	__u64 samples;	/* all that hit it, */
	__u64 not_ours;	/* of tasks that are not the owner's alone, or may not be dumped: nothing of them is told */
	__u64 lost;	/* for which the ring had no room */
	__u64 waits;	/* calls that waited for a millisecond or more, and have ended: all of them, */
	__u64 waited_ns;	/* and for how long; */
	__u64 wait_stacks;	/* of so many there is a stack */
};

/* A file that the reader of samples has open, so that nobody else gets its inode. */
struct open_file {
	__u64 run;	/* whose it is; 0: root's, whom nobody else can write to it */
	__u64 inode;
	__u32 device;	/* as the kernel has it */
	__u32 unused;
};

/* A part of a process's memory in which it runs code; those of a process are in order. */
struct code_mapping {
	__u64 start, end;
	__u64 offset;	/* of `start` in the file */
	__u32 file;	/* its number; 0: no file, or none that could be had */
	__u32 unused;
};

enum { PYTHON_FRAME_BYTES = 256, PYTHON_CODE_WORDS = 16, PYTHON_TEXT_BYTES = 64, PYTHON_NOWHERE = 0xffff };

/* Where a process's Python keeps what it runs: Layout of condor_joblens/profiling/python_offsets.py. */
struct python_process {
	__u64 head;	/* address of that of the first interpreter */
	__u32 threads, interpreter_next;	/* in an interpreter */
	__u32 thread_next, thread_id, thread_frame, cframe_frame;	/* PYTHON_NOWHERE: this version has none */
	__u32 frame_bytes;	/* all that follows is within */
	__u32 frame_previous, frame_code, frame_instruction, frame_owner, frame_is_entry;
	__u32 code_first, code_bytes;	/* of a code object: what is read of it, words; from there on all that follows */
	__u32 code_number;	/* of 32 bits; no other one has it, but for those with 0. PYTHON_NOWHERE: it has none */
	__u32 code_filename, code_name, code_line_table;
	__u32 text_length, text_data, text_kind_bit;	/* as Layout has them */
	__u32 bytes_size, bytes_data;
	__u32 unused;
};

/* Of the memory of a process that crashes: with it go the names of its functions of Python. */
enum { TOLD_CODES = 16, TOLD_CODE_BYTES = 256, TOLD_TEXT_BYTES = 512, TOLD_TABLE_BYTES = 2048 };
struct told_memory {
	struct sample sample;	/* without frames */
	__u64 address;
	char bytes[TOLD_TABLE_BYTES];	/* as many as there are */
};

/* What a process that crashes has not caught. */
struct told_exception {
	struct sample sample;	/* without frames */
	struct cxx_exception exception;
};

enum { NAMED_AT_ONCE = 256 };

/* Addresses in the kernel whose names are asked for: one element. */
struct kernel_addresses { __u32 count; __u32 unused; __u64 at[NAMED_AT_ONCE]; };

enum { MOST_MAPPINGS = 65536, MOST_UNWIND_ROWS = 1 << 24 };

#endif
