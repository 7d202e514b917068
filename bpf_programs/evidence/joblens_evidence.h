/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What the iterator over the threads of one slot is asked, and what it writes: plain declarations, as in lib/joblens.h.
 */
#ifndef JOBLENS_EVIDENCE_H
#define JOBLENS_EVIDENCE_H

enum { KERNEL_FRAMES = 32, CALL_ARGUMENTS = 6 };

enum thread_flags {
	THREAD_IS_OWNERS = 1,	/* its credentials are the owner's alone, and its memory may be looked into */
	THREAD_HAS_REGISTERS = 2,	/* as it entered the kernel */
	THREAD_IS_ZOMBIE = 4,	/* it has ended, and nobody has waited for it */
};

/* Whose threads are meant: written by the agent before it opens the iterator. */
struct evidence_question {
	__u32 slot;
	__u32 uid;	/* of the job's owner; of anybody else's threads no more is told than that they are there */
};

/* One thread. Behind it come `kernel_frames` lines, the innermost first: the kernel's own names of the addresses. */
struct thread_report {
	__u32 tid, tgid, parent_tgid;	/* in the agent's pid namespace; 0: not there */
	__u32 inner_tid;	/* in the innermost pid namespace that it is in: as the thread knows itself */
	__u32 state;	/* __state of struct task_struct; 0: it runs or is ready to */
	__u32 flags;	/* enum thread_flags */
	__u64 waited_ns;	/* since it left the CPU; not longer than that, if it runs 0 */
	__u64 call;	/* the number of its system call, or ~0 */
	__u64 arguments[CALL_ARGUMENTS];
	__u64 ip, sp, bp;	/* of the program that made the call */
	__u64 thread_pointer;	/* where the C library has what is the thread's own: what pthread_self(3) tells it */
	__u32 kernel_frames;
	char name[16];
};

#endif
