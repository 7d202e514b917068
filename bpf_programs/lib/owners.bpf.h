/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whether a task is its job's owner's, so that he may be told what is in its memory. */
#ifndef JOBLENS_OWNERS_BPF_H
#define JOBLENS_OWNERS_BPF_H

#include "compat.bpf.h"

enum { DUMPABLE_MASK = 3, DUMP_USER = 1 };	/* include/linux/sched/coredump.h */

/* All of its ids are his; no set-user-id program has that. */
static __always_inline bool has_owners_ids(struct task_struct *task, u32 uid)
{
	return BPF_CORE_READ(task, real_cred, uid.val) == uid && BPF_CORE_READ(task, real_cred, euid.val) == uid &&
	       BPF_CORE_READ(task, real_cred, suid.val) == uid && BPF_CORE_READ(task, real_cred, fsuid.val) == uid;
}

/* Whether ptrace(2) lets its owner look at it, who has all of its ids. */
static __always_inline bool may_be_dumped(struct task_struct *task, struct mm_struct *mm)
{
	if (bpf_core_field_exists(struct task_struct___exec, exec_state)) {
		struct task_exec_state *state = BPF_CORE_READ((struct task_struct___exec *)task, exec_state);
		u32 dumpable = 0;

		bpf_probe_read_kernel(&dumpable, sizeof(dumpable), &state->dumpable);
		return dumpable == DUMP_USER;
	}
	return (mm_flags(mm) & DUMPABLE_MASK) == DUMP_USER;
}

/* As ptrace(2) has it, for a process of the owner's: all of its ids are his, and it may be dumped, which no set-user-id
 * program and none that has gained capabilities is. A kernel that keeps this elsewhere gets no. */
static __always_inline bool is_owners(struct task_struct *task, u32 uid)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	return mm && has_owners_ids(task, uid) && may_be_dumped(task, mm);
}

/* The same two of a task whose type the verifier knows, so that its members are read as in C: that takes less. */
static __always_inline bool typed_has_owners_ids(struct task_struct *task, u32 uid)
{
	const struct cred *cred = task->real_cred;

	return cred->uid.val == uid && cred->euid.val == uid && cred->suid.val == uid && cred->fsuid.val == uid;
}

static __always_inline unsigned long typed_mm_flags(struct mm_struct *mm)
{
	if (bpf_core_field_exists(mm->flags))
		return mm->flags;
	if (bpf_core_field_exists(struct mm_struct___bitmap, flags))
		return ((struct mm_struct___bitmap *)mm)->flags.__mm_flags[0];
	return 0;
}

static __always_inline bool typed_may_be_dumped(struct task_struct *task, struct mm_struct *mm)
{
	if (bpf_core_field_exists(struct task_struct___exec, exec_state)) {
		struct task_exec_state *state = ((struct task_struct___exec *)task)->exec_state;

		return state && state->dumpable == DUMP_USER;
	}
	return (typed_mm_flags(mm) & DUMPABLE_MASK) == DUMP_USER;
}

static __always_inline bool typed_is_owners(struct task_struct *task, u32 uid)
{
	struct mm_struct *mm = task->mm;

	return mm && typed_has_owners_ids(task, uid) && typed_may_be_dumped(task, mm);
}

#endif
