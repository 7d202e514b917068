/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Process ids as others know them: each pid namespace has its own. */
#ifndef JOBLENS_PIDS_BPF_H
#define JOBLENS_PIDS_BPF_H

#include "compat.bpf.h"
#include "joblens.h"

enum { FIRST_PID_NAMESPACE = 0xEFFFFFFC };	/* PROC_PID_INIT_INO of include/linux/proc_ns.h: all tasks are in it */
enum { MAX_PID_NAMESPACES = 4 };	/* one in another, that are looked through for the agent's */

/* The id of a thread in the pid namespace with this inode; of a process, that of its leader. 0 where it lives outside. */
static __always_inline u32 pid_in(u32 namespace_inode, struct task_struct *task)
{
	struct pid *pid = MEMBER(task, thread_pid);
	u32 level;

	if (!pid)
		return 0;
	if (namespace_inode == FIRST_PID_NAMESPACE)
		return MEMBER(task, pid);
	if (MEMBER(pid, numbers[0].ns, ns.inum) == namespace_inode)
		return MEMBER(pid, numbers[0].nr);
	level = MEMBER(pid, level);
	for (u32 depth = 1; depth < MAX_PID_NAMESPACES && depth <= level; depth++) {
		struct upid number = {};
		u32 offset = bpf_core_field_offset(struct pid, numbers) + depth * sizeof(number);

		bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + offset);
		if (BPF_CORE_READ(number.ns, ns.inum) == namespace_inode)
			return number.nr;
	}
	return 0;
}

/* The same in the agent's pid namespace. */
static __always_inline u32 pid_here(struct node *node, struct task_struct *task)
{
	return pid_in(node->pid_namespace_inode, task);
}

/* The id of a thread in the innermost namespace that it is in, as gettid() gives it; 0 where it is gone. */
static __always_inline u32 pid_inside(struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	struct upid number = {};

	if (!pid)
		return 0;

	u32 offset = bpf_core_field_offset(struct pid, numbers) + pid->level * sizeof(number);

	bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + offset);
	return number.nr;
}

#endif
