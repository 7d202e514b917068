// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: a program at the entry and the exits of functions.
 *
 * It never changes where a function returns to, as return probes do: these end C++ and Go programs. Each exit has a probe
 * of its own. At the entry and at an exit the stack pointer is where the return address lies, so who reads this can put
 * the two together.
 */
#include "pids.bpf.h"
#include "owners.bpf.h"
#include "joblens_trace.h"

enum { WINDOW_SHIFT = 26 };	/* 67 ms: 2^26 ns */

/* Words of struct pt_regs on x86-64 */
enum { BP = 4, R9 = 8, R8 = 9, AX = 10, CX = 11, DX = 12, SI = 13, DI = 14, IP = 16, SP = 19, WORDS = 21 };

const volatile struct {
	__u32 uid;	/* of the job's owner */
	__u32 pid_namespace_inode;
} settings SEC(".rodata") = {};

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} jl_traced_job SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TRACED_FUNCTIONS);
	__type(key, u32);
	__type(value, struct traced_function);
} jl_traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_POINTS);
	__type(key, u32);
	__type(value, struct traced_point);
} jl_points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} jl_hits SEC(".maps");

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

/* A function that is called so often that it costs the job too much is not looked at any more: a leaky bucket of hits.
 * Two CPUs that meet here may lose some of each other's; a function that is hit so often is switched off all the same.
 */
static __always_inline bool is_too_hot(struct traced_function *function, u64 now)
{
	u64 window = now >> WINDOW_SHIFT;
	s64 passed = window - function->window;

	if (passed > 0) {
		u64 level = function->level, forgotten = passed * function->forgotten;

		function->window = window;
		function->level = level > forgotten ? level - forgotten : 0;
	}
	__sync_fetch_and_add(&function->level, 1);
	return function->level > function->allowed;
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

	if (has_texts)
		read_texts(told, function->texts);
	if (bpf_ringbuf_output(&jl_hits, told, has_texts ? sizeof(*told) : sizeof(*hit), flags))
		__sync_fetch_and_add(&all->lost, 1);
}

SEC("uprobe")
int jl_function(volatile u64 *context)	/* the verifier wants each word read at a place of its own */
{
	u32 number = bpf_get_attach_cookie((void *)context), last = TRACED_FUNCTIONS - 1;
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = bpf_map_lookup_elem(&jl_points, &number);
	/* not in a map: a task that is preempted here would find another's */
	struct traced_texts told = {};

	if (!point)
		return 0;

	bool is_trial = point->kind == TRACED_TRIAL;

	if (bpf_current_task_under_cgroup(&jl_traced_job, 0) != 1 && !is_trial)
		return 0;

	struct traced_function *function = bpf_map_lookup_elem(&jl_traced, &point->function);
	struct traced_function *all = bpf_map_lookup_elem(&jl_traced, &last);
	struct traced_hit *hit = &told.hit;
	u64 now = bpf_ktime_get_ns(), first, result;

	if (!function || !all || function->off_ns)
		return 0;
	if (!is_owners(task, settings.uid) && !is_trial) {
		__sync_fetch_and_add(&function->not_ours, 1);
		return 0;
	}
	__sync_fetch_and_add(&function->hits, 1);

	bool is_off = is_too_hot(function, now);

	if (!is_off && point->kind == TRACED_JUMP && !leaves((void *)context, point, context[IP]))
		return 0;
	hit->time_ns = now;
	hit->stack = context[SP];
	hit->lost = all->lost;
	hit->pid = pid_in(settings.pid_namespace_inode, task->group_leader);
	hit->tid = pid_in(settings.pid_namespace_inode, task);
	hit->thread = bpf_get_current_pid_tgid();
	hit->function = point->function;
	hit->kind = point->kind == TRACED_JUMP ? TRACED_LEAVE : point->kind;
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
