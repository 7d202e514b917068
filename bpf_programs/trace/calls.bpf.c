// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: a program at the entry and the exits of functions.
 *
 * It never changes where a function returns to, as return probes do: these end C++ and Go programs. Each exit has a probe
 * of its own. At the entry and at an exit the stack pointer is where the return address lies, so who reads this can put
 * the two together.
 */
#include "traced.bpf.h"

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
	/* not in a map: a task that is preempted here would find another's */
	struct traced_texts told = {};

	describe(&told.hit, task, point, all, now);
	keep_registers(&told.hit, context, true);
	read_texts(&told, function->texts);
	return !bpf_ringbuf_output(&jl_hits, &told, sizeof(told), BPF_RB_NO_WAKEUP);
}

/* A hit without texts is written where it is read: most are such, and each copy and each cache line takes time. */
static __always_inline bool tell(const u32 bytes, struct task_struct *task, struct traced_point *point,
				 struct traced_function *all, u64 now, bool is_off,
				 volatile u64 *context)
{
	struct traced_hit *hit = bpf_ringbuf_reserve(&jl_hits, bytes, 0);

	if (!hit)
		return false;
	describe(hit, task, point, all, now);
	keep_registers(hit, context, bytes > TRACED_SHORT_BYTES);
	if (is_off)
		hit->kind = TRACED_OFF;
	bpf_ringbuf_submit(hit, is_off ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return true;
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
