// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: what a C++ program throws, and from where.
 *
 * The probe is at the entry of __cxa_throw(object, type, destructor), which never returns. Memory is read as far as it is
 * there: nothing makes the thread wait.
 */
#define RING_BYTES (4 << 20)	/* 300 throws: what reads them may look up a stack meanwhile */
#include "traced.bpf.h"

enum {
	PAGE_BYTES = 4096,
	/* offsets in std::type_info and, of a class with one base, in its heirs (Itanium C++ ABI, 2.9) */
	NAME_OF_TYPE = 8,
	BASE_OF_TYPE = 16,
	TEXT_OF_EXCEPTION = 8,	/* of std::runtime_error and std::logic_error, in libstdc++ and in libc++ */
};

static __always_inline u64 word_at(u64 address)
{
	u64 value = 0;

	if (address)
		bpf_probe_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* Of a class that has no base, or several, what lies behind is no type: its name is none that anybody knows. */
static __always_inline void read_types(struct traced_throw *thrown, u64 type)
{
	thrown->name[0] = 0;
	thrown->names[0] = word_at(type + NAME_OF_TYPE);
	if (bpf_probe_read_user_str(thrown->name, sizeof(thrown->name), (void *)thrown->names[0]) < 0)
		thrown->name[0] = 0;
	for (u32 at = 0; at < 4; at++) {
		type = word_at(type ? type + BASE_OF_TYPE : 0);
		thrown->names[at + 1] = word_at(type ? type + NAME_OF_TYPE : 0);
		if (!thrown->names[at + 1] || bpf_probe_read_user_str(thrown->bases[at], sizeof(thrown->bases[at]),
								      (void *)thrown->names[at + 1]) < 0)
			thrown->bases[at][0] = 0;
	}
}

/* As many pages of the stack as are there. */
static __always_inline void read_stack(struct traced_throw *thrown, u64 stack)
{
	u32 first = (PAGE_BYTES - (u32)stack) & (PAGE_BYTES - 1);

	thrown->stack_bytes = 0;
	if (bpf_probe_read_user(thrown->stack, first, (void *)stack))
		return;
	thrown->stack_bytes = first;
	if (bpf_probe_read_user(thrown->stack + first, PAGE_BYTES, (void *)(stack + first)))
		return;
	thrown->stack_bytes = first + PAGE_BYTES;
	if (!bpf_probe_read_user(thrown->stack + first + PAGE_BYTES, PAGE_BYTES, (void *)(stack + first + PAGE_BYTES)))
		thrown->stack_bytes = first + 2 * PAGE_BYTES;
}

SEC("uprobe")
int jl_throw(volatile u64 *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	struct traced_function *all = all_functions(), *function = looked_at(point, task);
	u64 now = bpf_ktime_get_ns();

	if (!function || !all || !point)
		return 0;

	bool is_off = is_too_hot(function, now);
	struct traced_throw *thrown = bpf_ringbuf_reserve(&jl_hits, sizeof(*thrown), 0);

	if (is_off)
		function->off_ns = now;
	if (!thrown) {
		__sync_fetch_and_add(&all->lost, 1);
		return 0;
	}
	__builtin_memset(&thrown->hit, 0, sizeof(thrown->hit));
	describe(&thrown->hit, task, point, all, now);
	if (is_off)
		thrown->hit.kind = TRACED_OFF;
	thrown->hit.stack = context[SP];
	thrown->hit.values[0] = context[DI];
	thrown->hit.values[1] = context[SI];
	thrown->instruction = context[IP];
	thrown->frame = context[BP];
	read_types(thrown, thrown->hit.values[1]);
	thrown->has_text = bpf_probe_read_user_str(thrown->text, sizeof(thrown->text),
						   (void *)word_at(thrown->hit.values[0] + TEXT_OF_EXCEPTION)) > 0;
	read_stack(thrown, thrown->hit.stack);
	/* at once: it may be the process's end */
	bpf_ringbuf_submit(thrown, BPF_RB_FORCE_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
