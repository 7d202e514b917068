/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* User stacks as the kernel itself finds them, by frame pointers, for kernels before 5.17. OWN_WALK is the scratch of the
 * program that includes this. */
#ifndef JOBLENS_FRAME_POINTERS_BPF_H
#define JOBLENS_FRAME_POINTERS_BPF_H

#include "samples.bpf.h"

enum { GUESSED_FRAMES = 127 };	/* kernel.perf_event_max_stack, unless somebody has set it */

/* Of the frames of the kernel and these: all are within. */
enum { PLACES_MASK = 255 };

/* The mapping that an address is in: a search as in unwind.bpf.h. */
static __always_inline struct code_mapping *mapping_of(void *mappings, u64 address)
{
	u32 zero = 0, low = 1, high, middle;
	u64 *count = bpf_map_lookup_elem(mappings, &zero);
	struct code_mapping *mapping;

	if (!count)
		return 0;
	high = *count;
	for (u32 i = 0; i < MAPPING_STEPS && low <= high; i++) {
		middle = low + (high - low) / 2;
		mapping = bpf_map_lookup_elem(mappings, &middle);
		if (!mapping)
			return 0;
		if (address < mapping->start)
			high = middle - 1;
		else if (address >= mapping->end)
			low = middle + 1;
		else
			return mapping;
	}
	return 0;
}

/* Makes of a word of the stack the place in a file that it is; 1 if its mapping is not known. Not inlined, and not static:
 * so the verifier looks at it once, and not for each frame. It takes no pointers of such a function before 5.12. */
__attribute__((noinline)) int jl_place(u32 at, u32 is_caller)
{
	u32 zero = 0;
	struct walk *walk = bpf_map_lookup_elem(&OWN_WALK, &zero);
	struct code_mapping *mapping;
	void *mappings;
	u64 address, offset, place = at & PLACES_MASK;

	barrier_var(place);	/* else the compiler bounds another copy of it than it uses */
	if (!walk)
		return 0;
	address = walk->frames[place] - !!is_caller;
	walk->frames[place] = address;
	mappings = bpf_map_lookup_elem(&jl_mappings, &walk->sample.process);
	walk->is_new = !mappings;
	mapping = mappings ? mapping_of(mappings, address) : 0;
	if (!mapping)
		return 1;
	offset = address - mapping->start + mapping->offset;
	if (mapping->file && !(offset >> 32))
		walk->frames[place] = place_in_file(mapping->file, offset);
	return 0;
}

/* Fills the user's stack, behind the kernel's; all bytes of the sample. All of it is a guess: a function without a frame
 * pointer hides its caller or ends the stack, and nothing tells. */
static __always_inline u64 take_guessed_stack(struct walk *walk, void *ctx, struct task_struct *task)
{
	struct sample *sample = &walk->sample;
	u32 first = walk->at, frames = 0;
	long bytes = 0;

	walk->is_unknown = walk->is_new = false;
	walk->flags = SAMPLE_NO_RULES;
	if (first > SAMPLE_KERNEL_FRAMES)
		return 0;
	if (MEMBER(task, mm))
		bytes = bpf_get_stack(ctx, &walk->frames[first], GUESSED_FRAMES * sizeof(u64), BPF_F_USER_STACK);
	else
		walk->flags |= SAMPLE_WHOLE;
	if (bytes > 0)
		frames = (u32)bytes / sizeof(u64);
	for (u32 i = 0; i < GUESSED_FRAMES && i < frames; i++)
		if (jl_place(first + i, i))
			walk->is_unknown = true;
	if (frames)
		walk->flags |= SAMPLE_GUESSED;
	sample->user_frames = frames;
	sample->python_frames = 0;
	return sizeof(*sample) + (u64)(first + frames) * sizeof(u64);
}

#endif
