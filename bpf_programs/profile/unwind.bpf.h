/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The user stack of the current task, by tables: condor_joblens/profiling/unwind.py does the same outside of the kernel,
 * and a test compares the two. */
#ifndef JOBLENS_UNWIND_BPF_H
#define JOBLENS_UNWIND_BPF_H

#include "walk.bpf.h"

struct rows_of_file {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
};

/* Rows as in eh_frame.h. The first row is no row: it has how many follow. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, u32);
	__array(values, struct rows_of_file);
} jl_unwind_rows SEC(".maps");

/* As in eh_frame.h. */
enum rule {
	RULE_NONE, RULE_STACK, RULE_FRAME, RULE_PLT, RULE_REALIGNED, RULE_SIGNAL, RULE_END,
};
enum { RULE_SHIFT = 29, RULE_MASK = 7, N_SHIFT = 12, N_MASK = 0x1ffff, FRAME_MASK = 0xfff };

/* Where the kernel has saved registers of whom a signal interrupted, above the stack pointer of its handler's caller. */
enum { SAVED_FRAME = 120, SAVED_STACK = 160, SAVED_INSTRUCTION = 168 };

enum { ROW_STEPS = 25, PAGE_SHIFT = 12 };

/* The numbers of files. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct open_file);
	__type(value, u32);
} jl_files SEC(".maps");

/* Where a search has ended: elements of the process's mappings and of the file's rows. Whoever finds one here looks whether
 * it is the one that he wants, so it may be of other addresses, or of what is long gone. */
struct hint { u32 mapping, row; };

/* What each CPU remembers of the addresses that it has had in stacks: most come again. A search goes through a dozen places
 * that nobody else has in a cache. */
enum { HINT_BITS = 11, HINTS = 1 << HINT_BITS };
struct hints { struct hint of[HINTS]; };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hints);
} jl_hints SEC(".maps");

struct walk_arguments {
	struct walk *walk;
	struct hints *hints;
	void *mappings;	/* of the process; 0: they are not known */
};

/* Where the thread was when it entered the kernel; false if that can't be said. */
static __always_inline bool saved_registers(struct walk *walk, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	walk->bp = BPF_CORE_READ(regs, bp);
	walk->ip = BPF_CORE_READ(regs, ip);
	walk->sp = BPF_CORE_READ(regs, sp);
#elif defined(__TARGET_ARCH_arm64)
	walk->bp = BPF_CORE_READ(regs, regs[29]);
	walk->sp = BPF_CORE_READ(regs, sp);
	walk->ip = BPF_CORE_READ(regs, pc);
#endif
	return walk->ip != 0;
}

/* Where the thread was when it entered the kernel, or now if it is outside of it; false if that can't be said. */
static __always_inline bool user_registers(struct walk *walk, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	struct pt_regs *regs;
	/* as the ABI has them: kernels do not agree on the width of cs */
	volatile u64 *words = (void *)ctx;

#if defined(__TARGET_ARCH_x86)
	if ((words[17] & 3) == 3) {
		if ((words[17] & 0xffff) == 0x23)	/* a program of 32 bits */
			return false;
		walk->bp = words[4];
		walk->ip = words[16];
		walk->sp = words[19];
		return true;
	}
#elif defined(__TARGET_ARCH_arm64)
	if ((words[33] & 0x1f) == 0) {
		walk->bp = words[29];
		walk->sp = words[31];
		walk->ip = words[32];
		return true;
	}
#endif
	regs = (void *)bpf_task_pt_regs(task);
	return regs && saved_registers(walk, regs);
}

static __always_inline bool word(u64 address, u64 *value)
{
	return bpf_probe_read_user(value, sizeof(*value), (void *)address) == 0;
}

/* A search for the last element that does not lie behind a target, in an array in order; element 0 is none: its first
 * word is how many follow. The verifier looks at a step of bpf_loop once, and at those of a loop in all their ways. */
struct search {
	void *map;
	u64 target;
	u64 found;	/* first word of that element */
	u32 low, high;	/* elements that it can be are from here to here; at the end it is `high`, if that is above 0 */
};

static long search_step(u32 index, struct search *search)
{
	u32 middle = search->low + (search->high - search->low + 1) / 2;
	u64 *word;

	if (search->low > search->high)
		return 1;
	word = bpf_map_lookup_elem(search->map, &middle);
	if (!word)
		return 1;
	if (*word <= search->target) {
		search->found = *word;
		search->low = middle + 1;
	} else {
		search->high = middle - 1;
	}
	return 0;
}

static __always_inline bool find(struct search *search, u32 most_steps)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(search->map, &zero);

	if (!count)
		return false;
	search->low = 1;
	search->high = *count;
	bpf_loop(most_steps, search_step, search, 0);
	return search->high && search->low > search->high;
}

static __always_inline bool is_in(struct code_mapping *mapping, u64 address)
{
	return address >= mapping->start && address < mapping->end;
}

/* The mapping that an address is in. */
static __always_inline struct code_mapping *mapping_at(void *mappings, struct hint *hint, u64 address)
{
	struct search search = { .map = mappings, .target = address };
	u32 at = hint->mapping;
	struct code_mapping *mapping = bpf_map_lookup_elem(mappings, &at);

	if (mapping && is_in(mapping, address))
		return mapping;
	if (!find(&search, MAPPING_STEPS))
		return 0;
	at = hint->mapping = search.high;
	mapping = bpf_map_lookup_elem(mappings, &at);
	return mapping && is_in(mapping, address) ? mapping : 0;
}

/* The last row at or before an offset in a file; 0 is RULE_NONE. */
static __always_inline u64 row_at(u32 file, struct hint *hint, u64 offset)
{
	struct search search = { .map = bpf_map_lookup_elem(&jl_unwind_rows, &file), .target = offset << 32 | 0xffffffff };
	u32 at = hint->row, next = at + 1;
	u64 *row, *behind;

	if (!search.map || offset >> 32)
		return 0;
	row = bpf_map_lookup_elem(search.map, &at);
	behind = bpf_map_lookup_elem(search.map, &next);
	if (at && row && behind && *row <= search.target && *behind > search.target)
		return *row;
	find(&search, ROW_STEPS);
	hint->row = search.high;
	return search.found;
}

static __always_inline bool by_frame_pointer(struct walk *walk)
{
	u64 ip, bp;

	if (walk->bp < walk->sp || walk->bp % 8 || !word(walk->bp + 8, &ip) || !word(walk->bp, &bp))
		return false;
	walk->sp = walk->bp + 16;
	walk->ip = ip;
	walk->bp = bp;
	return true;
}

static __always_inline bool leave_handler(struct walk *walk)
{
	u64 sp = walk->sp;

	return word(sp + SAVED_INSTRUCTION, &walk->ip) && word(sp + SAVED_FRAME, &walk->bp) &&
	       word(sp + SAVED_STACK, &walk->sp);
}

/* The caller's instruction is the last word of the frame; its frame pointer mostly is near, and read with it. */
static __always_inline bool by_rule(struct walk *walk, u64 row)
{
	u32 rule = row >> RULE_SHIFT & RULE_MASK, n = row >> N_SHIFT & N_MASK;
	u64 frame = 8 * (row & FRAME_MASK), near = 8, end;

	if (rule == RULE_STACK)
		end = walk->sp + 8 * n;
	else if (rule == RULE_FRAME)
		end = walk->bp + 8 * n;
	else if (rule == RULE_PLT)
		end = walk->sp + (walk->ip % 16 >= n ? 16 : 8);
	else if (!word(walk->bp - 8 * n, &end))
		return false;
	if (frame && rule != RULE_REALIGNED && frame <= sizeof(walk->saved))
		near = frame;
	barrier_var(near);	/* else the compiler bounds another copy of it than it uses, which Linux 6.12 refuses */
	if (near > sizeof(walk->saved) || bpf_probe_read_user(walk->saved, near, (void *)(end - near)))
		return false;
	if (near > 8)
		walk->bp = walk->saved[0];
	else if (frame && !word(rule == RULE_REALIGNED ? walk->bp : end - frame, &walk->bp))
		return false;
	walk->ip = walk->saved[(near / 8 - 1) & (SAVED_WORDS - 1)];
	walk->sp = end;
	return true;
}

/* The mapping of the next frame, which mostly is the one of the frame before. */
static __always_inline bool next_mapping(struct walk *walk, void *mappings, struct hint *hint, u64 address)
{
	struct code_mapping *found;

	if (is_in(&walk->mapping, address))
		return true;
	found = mappings ? mapping_at(mappings, hint, address) : 0;
	if (!found)
		return false;
	walk->mapping = *found;
	return true;
}

/* Adds the present frame and goes to its caller; 1 if there is none that can be found. */
static long step(u32 index, struct walk_arguments *arguments)
{
	struct walk *walk = arguments->walk;
	u64 address = walk->ip - walk->has_called, below = walk->sp, row = 0, frame = address;
	struct hint *hint = &arguments->hints->of[(address ^ address >> HINT_BITS) & (HINTS - 1)];
	u32 at = walk->at, rule;
	bool done;

	if (!next_mapping(walk, arguments->mappings, hint, address)) {
		walk->is_unknown = true;
	} else if (walk->mapping.file) {
		u64 offset = address - walk->mapping.start + walk->mapping.offset;

		row = row_at(walk->mapping.file, hint, offset);
		if (!(offset >> 32))
			frame = place_in_file(walk->mapping.file, offset);
	}
	if (at >= SAMPLE_KERNEL_FRAMES + SAMPLE_USER_FRAMES)
		return 1;
	walk->frames[at] = frame;
	walk->at = at + 1;
	rule = row >> RULE_SHIFT & RULE_MASK;
	if (rule == RULE_END) {
		walk->flags |= SAMPLE_WHOLE;
		return 1;
	}
	walk->has_called = rule != RULE_SIGNAL;
	if (rule == RULE_SIGNAL)
		done = leave_handler(walk);
	else if (rule == RULE_NONE)
		done = by_frame_pointer(walk);
	else
		done = by_rule(walk, row);
	if (!done)
		return 1;
	if (!walk->ip) {	/* the kernel or the C library has begun it */
		if (rule != RULE_NONE)
			walk->flags |= SAMPLE_WHOLE;
		return 1;
	}
	if (rule == RULE_NONE)
		walk->flags |= SAMPLE_GUESSED;
	return walk->sp <= below && rule != RULE_SIGNAL;
}

/* Keeps what is mapped at the leaf, if its file is one that the reader has. */
static long look_at_mapping(struct task_struct *task, struct vm_area_struct *vma, struct walk_arguments *arguments)
{
	struct walk *walk = arguments->walk;
	struct open_file file = {};
	u32 *number;

	file.inode = MEMBER(vma, vm_file, f_inode, i_ino);
	file.device = MEMBER(vma, vm_file, f_inode, i_sb, s_dev);
	if (!file.inode)
		return 0;
	number = bpf_map_lookup_elem(&jl_files, &file);
	if (!number) {
		file.run = walk->sample.run;
		number = bpf_map_lookup_elem(&jl_files, &file);
	}
	if (!number)
		return 0;
	walk->mapping.start = MEMBER(vma, vm_start);
	walk->mapping.end = MEMBER(vma, vm_end);
	walk->mapping.offset = MEMBER(vma, vm_pgoff) << PAGE_SHIFT;
	walk->mapping.file = *number;
	walk->flags |= SAMPLE_BY_FILE;
	return 0;
}

static __always_inline void unwind(struct walk *walk, struct task_struct *task)
{
	u32 zero = 0;
	struct walk_arguments arguments = {
		walk,
		bpf_map_lookup_elem(&jl_hints, &zero),
		bpf_map_lookup_elem(&jl_mappings, &walk->sample.process),
	};

	if (!arguments.hints)
		return;
	walk->mapping.start = walk->mapping.end = 0;
	if (!arguments.mappings) {	/* it may have ended before anybody looks at it */
		walk->is_unknown = walk->is_new = true;
		bpf_find_vma(task, walk->ip, look_at_mapping, &arguments, 0);
	}
	bpf_loop(SAMPLE_USER_FRAMES, step, &arguments, 0);
}

#endif
