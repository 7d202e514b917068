/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whether a call has asked for what is read from a file, or whether a page of a mapped file was touched. */
#ifndef JOBLENS_READING_CALLS_BPF_H
#define JOBLENS_READING_CALLS_BPF_H

#include "compat.bpf.h"
#include "../io/syscalls.h"

enum { PF_IO_WORKER = 0x10, PF_KTHREAD = 0x00200000 };	/* include/linux/sched.h */
enum { THREAD_BYTES = 16384 };	/* of a thread's stack in the kernel, x86-64 */
enum bpf_func_id___registers { BPF_FUNC_task_pt_regs___registers = 1 };

/* Null where they can't be found: before 5.15, and not on x86-64. */
static __always_inline struct pt_regs *registers_of_current(void)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id___registers, BPF_FUNC_task_pt_regs___registers))
		return (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), stack) + THREAD_BYTES -
	       bpf_core_type_size(struct pt_regs);
#else
	return 0;
#endif
}

static __always_inline bool is_reading_call(s64 number)
{
	switch (number) {
	case NUMBER_READ:
	case NUMBER_PREAD64:
	case NUMBER_READV:
	case NUMBER_PREADV:
	case NUMBER_PREADV2:
	case NUMBER_SENDFILE:
	case NUMBER_SPLICE:
	case NUMBER_COPY_FILE_RANGE:
	case NUMBER_READAHEAD:
	case NUMBER_FADVISE64:
	case NUMBER_IO_SUBMIT:
	case NUMBER_IO_URING_ENTER:
		return true;
	}
	return false;
}

/* Whether the thread that runs here has the kernel read a file without a call that asks for it: at a page fault, its
 * call's number is -1. A call can touch such a page too, as `write` does from a mapped file. What a 32-bit program's
 * calls are called is not looked at: they ask for what they read. */
static __always_inline bool reads_unasked(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pt_regs *regs = registers_of_current();

	if (!regs || BPF_CORE_READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER))
		return false;
#if defined(__TARGET_ARCH_x86)
	s64 number = BPF_CORE_READ(regs, orig_ax);
	u16 segment = BPF_CORE_READ(regs, cs);
	bool is_32_bit = segment == 0x23 || segment == 0xe023;	/* __USER32_CS, of the machine and under Xen */
#elif defined(__TARGET_ARCH_arm64)
	s64 number = BPF_CORE_READ(regs, syscallno);
	bool is_32_bit = BPF_CORE_READ(regs, pstate) & 0x10;	/* PSR_MODE32_BIT */
#endif
	return number == -1 || !(is_32_bit || is_reading_call(number));
}

#endif
