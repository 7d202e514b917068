// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: a program at the entry and the exits of functions.
 *
 * It never changes where a function returns to, as return probes do: these end C++ and Go programs. Each exit has a probe
 * of its own. At the entry and at an exit the stack pointer is where the return address lies, so who reads this can put
 * the two together.
 */
#define RING_BYTES (1 << 12)	/* for what wakes the reader; its hits come another way */
#include "traced.bpf.h"

/* Hits are written into memory that their reader maps: to have the kernel's own ring keep a place and let it go takes as
 * long as the rest of a short hit. */
MAPPED_ARRAY(jl_told, struct traced_ring);

/* So often another CPU may get the place that a hit was to have. It has no other place for so long that it is lost. */
enum { MOST_ATTEMPTS = 32 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_FUNCTIONS);
	__type(key, u32);
	__type(value, struct traced_name);
} jl_names SEC(".maps");

/* A register by its place in struct pt_regs; the program's context can't be read at a place that is no constant. */
static __always_inline bool register_of(void *context, u32 word, u64 *value)
{
	return word < WORDS && !bpf_probe_read_kernel(value, sizeof(*value), context + word * sizeof(u64));
}

/* Whether a jump goes out of the function. One whose target can't be read has none that code could be at. */
static __always_inline bool leaves(void *context, const struct traced_point *point, u64 here)
{
	u64 target = 0, index = 0;

	if (point->base == IP)
		target = here;
	else if (point->base != TRACED_NO_REGISTER && !register_of(context, point->base, &target))
		return false;
	if (point->is_memory) {
		if (point->index != TRACED_NO_REGISTER && !register_of(context, point->index, &index))
			return false;
		target += index * point->scale + (s64)point->displacement;
		if (bpf_probe_read_user(&target, sizeof(target), (void *)target))
			return false;
	}
	s64 distance = target - here;

	return (distance <= point->main_start || distance >= point->main_end) &&
	       (distance < point->cold_start || distance >= point->cold_end);
}

static __always_inline void read_texts(struct traced_texts *told, u32 wanted)
{
	u32 at = 0;

	for (u32 argument = 0; argument < TRACED_ARGUMENTS; argument++) {
		if (!(wanted >> argument & 1) || at >= TRACED_TEXTS)
			continue;
		if (bpf_probe_read_user_str(told->text[at], TRACED_TEXT_BYTES, (void *)told->hit.values[argument]) >= 0)
			told->hit.texts |= 1 << argument;
		at++;
	}
}

/* A place for a hit of so many bytes, with its texts, until `publish`; null if the reader has not made room. */
static __always_inline struct traced_record *new_record(const u32 bytes)
{
	const u64 whole = sizeof(u64) + bytes;
	u32 zero = 0;
	struct traced_ring *ring = bpf_map_lookup_elem(&jl_told, &zero);

	_Static_assert(sizeof(struct traced_record) <= sizeof(ring->records) - TRACED_RING_BYTES, "no room behind the ring");
	_Static_assert(TRACED_SHORT_BYTES % 8 == 0 && sizeof(struct traced_hit) % 8 == 0, "records are in eights");
	if (!ring)
		return 0;
	for (u32 attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
		u64 given = *(volatile u64 *)&ring->given;

		if (given + whole - *(volatile u64 *)&ring->taken > TRACED_RING_BYTES)
			return 0;
		if (__sync_val_compare_and_swap(&ring->given, given, given + whole) == given)
			return (void *)(ring->records + (given & (TRACED_RING_BYTES - 8)));
	}
	return 0;
}

/* What was written before is seen by who sees the size. x86-64 stores in order, and no other machine has this program. */
static __always_inline void publish(struct traced_record *record, const u32 bytes)
{
	barrier();
	*(volatile u64 *)&record->bytes = sizeof(u64) + bytes;
}

/* What the registers hold; the verifier wants each word read at a place of its own. */
static __always_inline void keep_registers(struct traced_hit *hit, volatile u64 *context, bool has_arguments)
{
	u64 first = context[DI], result = context[AX];

	hit->stack = context[SP];
	hit->values[0] = hit->kind == TRACED_ENTRY ? first : result;
	if (!has_arguments)
		return;
	hit->values[1] = context[SI];
	hit->values[2] = context[DX];
	hit->values[3] = context[CX];
	hit->values[4] = context[R8];
	hit->values[5] = context[R9];
}

static __always_inline bool tell_with_texts(struct traced_function *function, struct task_struct *task,
					    struct traced_point *point, struct traced_function *all, u64 now,
					    volatile u64 *context)
{
	struct traced_record *record = new_record(sizeof(struct traced_texts));

	if (!record)
		return false;
	describe(&record->told.hit, task, point, all, now);
	keep_registers(&record->told.hit, context, true);
	read_texts(&record->told, function->texts);
	publish(record, sizeof(struct traced_texts));
	return true;
}

static __always_inline bool tell(const u32 bytes, struct task_struct *task, struct traced_point *point,
				 struct traced_function *all, u64 now, bool is_off,
				 volatile u64 *context)
{
	struct traced_record *record = new_record(bytes);

	if (record) {
		describe(&record->told.hit, task, point, all, now);
		keep_registers(&record->told.hit, context, bytes > TRACED_SHORT_BYTES);
		if (is_off)
			record->told.hit.kind = TRACED_OFF;
		publish(record, bytes);
	}
	if (is_off)
		bpf_ringbuf_output(&jl_hits, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
	return record;
}

/* The flight recorder has it too: in the kernel, so that it is there whatever ends the job. */
static __always_inline void record_call(struct traced_point *point, struct task_struct *task, u64 instruction)
{
	u32 function = point->function, kind = point->kind == TRACED_ENTRY ? RECORDED_CALL : RECORDED_RETURN;
	struct traced_name *name;
	struct recorded *record;
	u64 number;

	if (settings.slot == NO_SLOT || point->kind == TRACED_TRIAL)
		return;
	name = bpf_map_lookup_elem(&jl_names, &function);
	if (!name)
		return;
	record = recorded_hit(TRACED_CALLS, instruction, pid_in(settings.pid_namespace_inode, task->group_leader), task,
			      RING_FREQUENT, kind, &number);
	if (!record)
		return;
	__builtin_memcpy(record->text, name->text, RECORDED_TEXT_BYTES);
	record->text_bytes = name->bytes;
	record->subject = RECORDED_NAME;
	leave(record, number);
}

SEC("uprobe")
int jl_function(volatile u64 *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	struct traced_function *all = all_functions(), *function = looked_at(point, task, all);
	u64 now = bpf_ktime_get_ns();
	bool is_told;

	have_threads_stack((void *)context);
	if (!function || !all || !point)
		return 0;

	bool is_off = is_too_hot(function, now), is_entry = point->kind == TRACED_ENTRY;

	if (!is_off && point->kind == TRACED_JUMP && !leaves((void *)context, point, context[IP]))
		return 0;
	if (is_off)
		function->off_ns = now;
	else
		record_call(point, task, context[IP]);
	if (is_entry && function->texts && !is_off)
		is_told = tell_with_texts(function, task, point, all, now, context);
	else if (is_entry && function->has_arguments && !is_off)
		is_told = tell(sizeof(struct traced_hit), task, point, all, now, false, context);
	else
		is_told = tell(TRACED_SHORT_BYTES, task, point, all, now, is_off, context);
	if (!is_told)
		__sync_fetch_and_add(&all->lost, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
