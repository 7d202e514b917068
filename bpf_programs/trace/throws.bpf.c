// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: what a C++ program throws, and from where.
 *
 * The probe is at the entry of __cxa_throw(object, type, destructor), which never returns. Memory is read as far as it is
 * there: nothing makes the thread wait.
 */
#define RING_BYTES (4 << 20)	/* 300 throws: what reads them may look up a stack meanwhile */
#include "traced.bpf.h"
#include "exceptions.bpf.h"

enum { PAGE_BYTES = 4096 };

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

/* The flight recorder has it too: in the kernel, so that it is there whatever ends the job. */
static __always_inline void record_throw(const struct traced_throw *thrown, struct task_struct *task)
{
	const struct cxx_exception *exception = &thrown->exception;
	struct recorded *record;
	u64 number;

	record = recorded_hit(TRACED_THROWS, thrown->instruction, thrown->hit.pid, task, RING_RARE, RECORDED_THROW, &number);
	if (!record)
		return;
	bpf_probe_read_kernel_str(record->text, RECORDED_TYPE_BYTES, exception->name);
	record->text[RECORDED_TYPE_BYTES] = 0;
	if (exception->has_text)
		bpf_probe_read_kernel_str(record->text + RECORDED_TYPE_BYTES, RECORDED_TEXT_BYTES - RECORDED_TYPE_BYTES,
					  exception->text);
	record->text_bytes = RECORDED_TEXT_BYTES;
	record->subject = RECORDED_TYPE;
	leave(record, number);
}

SEC("uprobe")
int jl_throw(volatile u64 *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	struct traced_function *all = all_functions(), *function = looked_at(point, task, all);
	u64 now = bpf_ktime_get_ns();

	have_threads_stack((void *)context);
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
	read_exception(&thrown->exception, thrown->hit.values[0], thrown->hit.values[1]);
	read_stack(thrown, thrown->hit.stack);
	if (!is_off && thrown->hit.kind != TRACED_TRIAL)
		record_throw(thrown, task);
	/* at once: it may be the process's end */
	bpf_ringbuf_submit(thrown, BPF_RB_FORCE_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
