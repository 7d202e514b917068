/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A stack that is being taken, and where the reader of samples says what of a process lies where. */
#ifndef JOBLENS_WALK_BPF_H
#define JOBLENS_WALK_BPF_H

#include "compat.bpf.h"
#include "joblens_profile.h"

struct mappings_of_process {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct code_mapping));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, struct process_key);
	__array(values, struct mappings_of_process);
} jl_mappings SEC(".maps");

enum { MAPPING_STEPS = 17 };

enum { SAMPLE_WORDS = SAMPLE_KERNEL_FRAMES + SAMPLE_USER_FRAMES + 2 * SAMPLE_PYTHON_FRAMES };

enum { SAVED_WORDS = 8 };

/* Lies in a map: the verifier would go through all values of what is on the stack. */
struct walk {
	u64 ip, sp, bp;
	u32 at;			/* frames so far, those of the kernel included */
	u32 flags;		/* enum sample_flags */
	bool has_called;	/* all frames but the innermost, and what a signal has interrupted */
	bool is_unknown;	/* an address was in no mapping that is known, */
	bool is_new;		/* nor is any other one of the process */
	struct code_mapping mapping;	/* that the frame before was in; `end` 0: none */
	u64 saved[SAVED_WORDS];	/* the end of a frame: registers of its caller */
	u32 python_frames;
	u8 python_frame[PYTHON_FRAME_BYTES];	/* one of them */
	u64 python_code[PYTHON_CODE_WORDS];	/* of its code object */
	u64 python_text[PYTHON_TEXT_BYTES / sizeof(u64)];	/* the end of a name */
	u64 python_file, python_file_part;	/* of the frame before: the address of its file's name, and what is made of it */
	u64 python_code_before;	/* its code object's address, */
	u32 python_identity;	/* and which one that is */
	struct sample sample;	/* with the frames behind it, it is what goes into the ring */
	u64 frames[SAMPLE_WORDS];
};

static __always_inline u64 place_in_file(u32 file, u64 offset)
{
	return 1ULL << 63 | (u64)file << FRAME_FILE_SHIFT | offset;
}

#endif
