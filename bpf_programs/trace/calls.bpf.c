// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: a program at the entry and the exits of functions.
 *
 * It never changes where a function returns to, as return probes do: these end C++ and Go programs. Each exit has a probe
 * of its own. At the entry and at an exit the stack pointer is where the return address lies, so who reads this can put
 * the two together.
 */
#include "traced.bpf.h"

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

static __always_inline void tell(struct traced_function *function, struct traced_function *all, struct traced_texts *told,
				 u64 flags)
{
	struct traced_hit *hit = &told->hit;
	bool has_texts = hit->kind == TRACED_ENTRY && function->texts;

	if (has_texts) {
		__builtin_memset(told->text, 0, sizeof(told->text));
		read_texts(told, function->texts);
	}
	if (bpf_ringbuf_output(&jl_hits, told, has_texts ? sizeof(*told) : sizeof(*hit), flags))
		__sync_fetch_and_add(&all->lost, 1);
}

SEC("uprobe")
int jl_function(volatile u64 *context)	/* the verifier wants each word read at a place of its own */
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	/* not in a map: a task that is preempted here would find another's */
	struct traced_texts told;	/* its texts are cleared only where there are any */
	u64 now = bpf_ktime_get_ns(), first, result;
	struct traced_function *all = all_functions(), *function = looked_at(point, task);
	struct traced_hit *hit = &told.hit;

	__builtin_memset(hit, 0, sizeof(*hit));
	if (!function || !all || !point)
		return 0;

	bool is_off = is_too_hot(function, now);

	if (!is_off && point->kind == TRACED_JUMP && !leaves((void *)context, point, context[IP]))
		return 0;
	describe(hit, task, point, all, now);
	hit->stack = context[SP];
	first = context[DI];
	result = context[AX];
	hit->values[0] = hit->kind == TRACED_ENTRY ? first : result;
	hit->values[1] = context[SI];
	hit->values[2] = context[DX];
	hit->values[3] = context[CX];
	hit->values[4] = context[R8];
	hit->values[5] = context[R9];
	if (is_off) {
		function->off_ns = now;
		hit->kind = TRACED_OFF;
	}
	tell(function, all, &told, is_off ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
