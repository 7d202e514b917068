/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The functions of Python that the current thread runs, as condor_joblens/profiling/python.py reads them of a thread that
 * stands still. Only addresses are taken here: their names are read by a child that is the job's owner. */
#ifndef JOBLENS_PYTHON_BPF_H
#define JOBLENS_PYTHON_BPF_H

#include "unwind.bpf.h"

enum {
	PYTHON_STATES = 512,	/* threads and interpreters of a process that are looked through for this one */
	PYTHON_IN_C = 3,	/* who owns a frame: C does, so it is none of Python's but where C has called it */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct process_key);
	__type(value, struct python_process);
} jl_pythons SEC(".maps");

struct state_search {
	struct python_process *python;
	u64 interpreter;	/* the next one */
	u64 state;	/* the next one of the interpreter before */
	u64 wanted;	/* the thread pointer of its thread */
	u64 found;
};

static long look_at_state(u32 index, struct state_search *search)
{
	struct python_process *python = search->python;
	u64 thread = 0, state = search->state, interpreter = search->interpreter;

	if (!state) {
		if (!interpreter || !word(interpreter + python->threads, &search->state) ||
		    !word(interpreter + python->interpreter_next, &search->interpreter))
			return 1;
		return 0;
	}
	if (!word(state + python->thread_id, &thread))
		return 1;
	if (thread == search->wanted) {
		search->found = state;
		return 1;
	}
	return !word(state + python->thread_next, &search->state);
}

struct python_walk { struct walk *walk; struct python_process *python; u64 frame; };

/* As in python_identity.py, which compares it before a name is told. Any change here is one there. */
static __always_inline u64 mixed_in(u64 mixed, u64 word)
{
	mixed = (mixed ^ word) * 0x9e3779b97f4a7c15ULL;
	return mixed ^ mixed >> 32;
}

/* Of what lies in memory, its length and its last bytes; 0 if they are not there. */
static __always_inline u64 part_of_bytes(struct walk *walk, u64 address, u64 bytes)
{
	u32 size = bytes < PYTHON_TEXT_BYTES ? bytes : PYTHON_TEXT_BYTES;
	u64 mixed = mixed_in(1, bytes);

	__builtin_memset(walk->python_text, 0, sizeof(walk->python_text));
	barrier_var(size);
	if (size > PYTHON_TEXT_BYTES || bpf_probe_read_user(walk->python_text, size, (void *)(address + bytes - size)))
		return 0;
	for (u32 i = 0; i < PYTHON_TEXT_BYTES / sizeof(u64); i++)
		mixed = mixed_in(mixed, walk->python_text[i]);
	return mixed;
}

/* Of a text: its own hash, which Python makes of all of it. Most names have one, of those that have none it is -1. */
static __always_inline u64 part_of_text(struct walk *walk, struct python_process *python, u64 text)
{
	enum { KIND = 7, ASCII = 16 };
	struct { u64 length, hash; u32 state; } head;
	u64 data = text + python->text_data;
	u32 state;

	if (bpf_probe_read_user(&head, 20, (void *)(text + python->text_length)))
		return 0;
	if (head.hash != ~0ULL)
		return mixed_in(2, head.hash);
	state = head.state >> (python->text_kind_bit & 31);
	if (!(state & ASCII))	/* it has room for its UTF-8: two words, up to 3.11 three */
		data += python->text_data == 48 ? 24 : 16;
	return part_of_bytes(walk, data, (state & KIND) * (head.length & 0xffffffff));
}

static __always_inline u64 part_of_table(struct walk *walk, struct python_process *python, u64 table)
{
	u64 size;

	return word(table + python->bytes_size, &size) ?
		part_of_bytes(walk, table + python->bytes_data, size & 0xffffffff) : 0;
}

static __always_inline u64 code_member(struct walk *walk, u32 offset)
{
	return walk->python_code[offset / sizeof(u64) & (PYTHON_CODE_WORDS - 1)];
}

/* What names it and says its lines. Each part that can't be read is 0, as what nobody has looked at for long. */
static __always_inline u64 parts_of_code(struct walk *walk, struct python_process *python, u64 mixed)
{
	u64 file = code_member(walk, python->code_filename);

	if (file != walk->python_file) {	/* callers mostly are in the same one */
		walk->python_file = file;
		walk->python_file_part = part_of_text(walk, python, file);
	}
	mixed = mixed_in(mixed, part_of_text(walk, python, code_member(walk, python->code_name)));
	mixed = mixed_in(mixed, walk->python_file_part);
	return mixed_in(mixed, part_of_table(walk, python, code_member(walk, python->code_line_table)));
}

/* Which code object this is: by what lies between its first line and its line table, as all of that stays as it is. From
 * 3.12 on a number is among it that no other code object has had; its names and lines need not be read then. */
static __always_inline u32 python_identity(struct walk *walk, struct python_process *python, u64 code)
{
	u32 bytes = python->code_bytes;
	u64 mixed = 3;

	if (bytes > sizeof(walk->python_code) ||
	    bpf_probe_read_user(walk->python_code, bytes, (void *)(code + python->code_first)))
		return 0;
	for (u32 i = 0; i < PYTHON_CODE_WORDS && i < bytes / sizeof(u64); i++)
		mixed = mixed_in(mixed, walk->python_code[i]);
	if (python->code_number == PYTHON_NOWHERE ||
	    !(u32)(code_member(walk, python->code_number) >> 8 * (python->code_number & 4)))
		mixed = parts_of_code(walk, python, mixed);
	return (u32)mixed ?: 1;
}

/* What a frame has as its instruction, in 32 bits. */
static __always_inline u32 place_in_code(struct python_process *python, u64 code, u64 instruction)
{
	s64 place = instruction - code;

	if (python->frame_owner == PYTHON_NOWHERE)
		return instruction;
	return place == (s32)place ? (u32)place : PYTHON_NO_PLACE;
}

static __always_inline u64 member(struct walk *walk, u32 offset)
{
	return *(u64 *)(walk->python_frame + (offset & (PYTHON_FRAME_BYTES - 8)));
}

/* Adds a frame and goes to its caller; 1 if there is none. */
static long python_step(u32 index, struct python_walk *arguments)
{
	struct walk *walk = arguments->walk;
	struct python_process *python = arguments->python;
	u32 at = walk->at, bytes = python->frame_bytes, owner = python->frame_owner, entry = python->frame_is_entry;
	bool is_last = owner == PYTHON_NOWHERE;
	u64 code, which, *to;

	if (!arguments->frame)
		return 1;
	if (bytes > PYTHON_FRAME_BYTES || at >= SAMPLE_WORDS - 1 ||
	    bpf_probe_read_user(walk->python_frame, bytes, (void *)arguments->frame)) {
		walk->flags |= SAMPLE_PYTHON_CUT;
		return 1;
	}
	arguments->frame = member(walk, python->frame_previous);
	if (entry != PYTHON_NOWHERE) {
		is_last = walk->python_frame[entry & (PYTHON_FRAME_BYTES - 1)];
	} else if (!is_last && walk->python_frame[owner & (PYTHON_FRAME_BYTES - 1)] >= PYTHON_IN_C) {
		at -= 2;	/* below 0, it is a great number */
		barrier_var(at);
		if (walk->python_frames && at < SAMPLE_WORDS)
			walk->frames[at] |= PYTHON_LAST_OF_CALL;
		return 0;
	}
	code = member(walk, python->frame_code) & ~PYTHON_CODE_BITS;
	if (code != walk->python_code_before) {	/* it has not called itself */
		walk->python_code_before = code;
		walk->python_identity = python_identity(walk, python, code);
	}
	which = (u64)walk->python_identity << PYTHON_IDENTITY_SHIFT |
		place_in_code(python, code, member(walk, python->frame_instruction));
	barrier_var(at);	/* kernels before 6.7 have lost its bound by now */
	if (at >= SAMPLE_WORDS - 1)
		return 1;
	to = walk->frames + at;
	to[0] = code | (is_last ? PYTHON_LAST_OF_CALL : 0);
	to[1] = which;
	walk->python_frames++;
	walk->at = at + 2;
	return 0;
}

/* Adds the functions of Python behind the user frames, if an interpreter is known in the process. */
static __always_inline void add_python(struct walk *walk, struct task_struct *task)
{
	struct python_process *python = bpf_map_lookup_elem(&jl_pythons, &walk->sample.process);
	struct state_search search = { .python = python };
	struct python_walk arguments = { .walk = walk, .python = python };

	if (!python)
		return;
	walk->python_file = walk->python_file_part = walk->python_code_before = 0;
	walk->python_identity = 0;
#if defined(__TARGET_ARCH_x86)
	search.wanted = task->thread.fsbase;
#endif
	/* Both are 0. Kernels before 6.7 verify the loop's function for its first call alone: if they knew that 0 they would
	 * take it that nothing is ever found, and drop all that follows. */
	search.state = search.found = *(volatile u32 *)&walk->python_frames;
	if (!search.wanted || !word(python->head, &search.interpreter))
		return;
	bpf_loop(PYTHON_STATES, look_at_state, &search, 0);
	if (!search.found || !word(search.found + python->thread_frame, &arguments.frame))
		return;
	if (python->cframe_frame != PYTHON_NOWHERE && !word(arguments.frame + python->cframe_frame, &arguments.frame))
		return;
	bpf_loop(SAMPLE_PYTHON_FRAMES + 1, python_step, &arguments, 0);
	if (arguments.frame)
		walk->flags |= SAMPLE_PYTHON_CUT;
}

#endif
