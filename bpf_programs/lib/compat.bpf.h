/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Every difference between kernels that the programs meet, in one place. */
#ifndef JOBLENS_COMPAT_BPF_H
#define JOBLENS_COMPAT_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>

/* 7.2 has there whether a task may be dumped, and not in mm->flags. Its members are taken to be where they are in 7.2: for
 * a type that this kernel has not, libbpf looks into all modules, which takes CAP_SYS_ADMIN. */
struct task_exec_state { s32 count; u32 dumpable; };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___exec { struct task_exec_state *exec_state; };
struct cgroup___ids { u64 ancestor_ids[1]; };		/* < 6.1: ids instead of pointers */
struct task_struct___state { volatile long state; };	/* < 5.14 */
struct mm_rss_stat { atomic_t count[4]; };		/* < 6.2: a structure of one atomic_long_t a kind of page */
struct mm_struct___atomic { struct mm_rss_stat rss_stat; };
typedef struct { unsigned long __mm_flags[1]; } mm_flags_t;
struct mm_struct___bitmap { mm_flags_t flags; };	/* >= 6.18: a structure of its own */
struct sock_cgroup_data___tagged { u64 val; };		/* < 5.15: a pointer with two tag bits */
#ifdef BY_CHANNEL	/* 7.2, see fuse_channels.bpf.c: a request knows its connection, and not its mount */
struct fuse_chan { struct fuse_conn *conn; };
struct fuse_req___chan { struct fuse_chan *chan; };
struct fuse_conn___chan { struct list_head mounts; };
struct fuse_mount___chan { struct list_head fc_entry; };
#endif
#pragma clang attribute pop

/* A chain of members of a kernel structure: MEMBER(task, mm, flags). As in C where the verifier knows the type of what it
 * begins with. That of the task that a clock has interrupted it knows from 5.11 on. */
#ifdef BEFORE_5_17
#define MEMBER(from, ...) BPF_CORE_READ(from, __VA_ARGS__)
#else
#define MEMBER(...) ___arrow(__VA_ARGS__)
#endif

/* The task that runs. */
static __always_inline struct task_struct *this_task(void)
{
#ifdef BEFORE_5_17
	return (struct task_struct *)bpf_get_current_task();
#else
	return bpf_get_current_task_btf();
#endif
}

/* The id of the cgroup's ancestor at `depth` (the root is 0); `depth` must not exceed cgroup->level. */
static __always_inline u64 ancestor_id(struct cgroup *cgroup, u32 depth)
{
	u64 id = 0;

	if (bpf_core_field_exists(cgroup->ancestors)) {
		struct cgroup *ancestor = 0;
		u32 offset = bpf_core_field_offset(struct cgroup, ancestors);

		bpf_probe_read_kernel(&ancestor, sizeof(ancestor), (void *)cgroup + offset + depth * sizeof(ancestor));
		return ancestor ? BPF_CORE_READ(ancestor, kn, id) : 0;
	}
	u32 offset = bpf_core_field_offset(struct cgroup___ids, ancestor_ids);

	bpf_probe_read_kernel(&id, sizeof(id), (void *)cgroup + offset + depth * sizeof(id));
	return id;
}

static __always_inline u32 task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return BPF_CORE_READ((struct task_struct___state *)task, state);
}

/* Pages of one kind (MM_FILEPAGES 0, MM_ANONPAGES 1, MM_SWAPENTS 2, MM_SHMEMPAGES 3). From 6.2 on the kernel
 * keeps them per CPU and this is the part that has been folded in, as in /proc/PID/statm of those kernels. */
static __always_inline u64 mm_pages(struct mm_struct *mm, u32 kind)
{
	s64 pages = 0;

	/* asked by the member, not by its type: for a type that this kernel has not, libbpf looks into all modules,
	 * which takes CAP_SYS_ADMIN */
	if (bpf_core_field_exists(struct mm_struct___atomic, rss_stat)) {
		u32 offset = bpf_core_field_offset(struct mm_struct___atomic, rss_stat);

		bpf_probe_read_kernel(&pages, sizeof(pages), (void *)mm + offset + kind * sizeof(pages));
	} else {
		u32 offset = bpf_core_field_offset(struct mm_struct, rss_stat) +
			     bpf_core_field_offset(struct percpu_counter, count);

		bpf_probe_read_kernel(&pages, sizeof(pages),
				      (void *)mm + offset + kind * bpf_core_type_size(struct percpu_counter));
	}
	return pages > 0 ? pages : 0;
}

/* What /proc/PID/coredump_filter sets, and before 7.2 prctl(PR_SET_DUMPABLE); 0 on a kernel that keeps it elsewhere. */
static __always_inline unsigned long mm_flags(struct mm_struct *mm)
{
	unsigned long flags = 0;

	if (bpf_core_field_exists(mm->flags))
		flags = BPF_CORE_READ(mm, flags);
	else if (bpf_core_field_exists(struct mm_struct___bitmap, flags))
		bpf_probe_read_kernel(&flags, sizeof(flags),
				      (void *)mm + bpf_core_field_offset(struct mm_struct___bitmap, flags));
	return flags;
}

/* The cgroup that owns a socket: that of the process which made it; 0 where the kernel does not keep it. */
static __always_inline struct cgroup *sock_cgroup(const struct sock *sk)
{
	if (bpf_core_field_exists(struct sock_cgroup_data, cgroup))
		return BPF_CORE_READ(sk, sk_cgrp_data.cgroup);

	struct sock_cgroup_data___tagged *data =
		(void *)sk + bpf_core_field_offset(struct sock, sk_cgrp_data);
	u64 value = BPF_CORE_READ(data, val);

	return value & 1 ? 0 : (struct cgroup *)(value & ~3ULL);
}

#ifndef BY_CHANNEL

/* The connection of a request to a daemon of FUSE. */
static __always_inline struct fuse_conn *fuse_connection(struct fuse_req *req)
{
	return BPF_CORE_READ(req, fm, fc);
}

/* Of the mount that a request is for. */
static __always_inline struct super_block *fuse_super_block(struct fuse_req *req)
{
	return BPF_CORE_READ(req, fm, sb);
}

#else

static __always_inline struct fuse_conn *fuse_connection(struct fuse_req *req)
{
	return BPF_CORE_READ((struct fuse_req___chan *)req, chan, conn);
}

/* A request does not know its mount: of its connection's first, and mostly there is one. */
static __always_inline struct super_block *fuse_super_block(struct fuse_req *req)
{
	void *connection = fuse_connection(req);
	void *first = BPF_CORE_READ((struct fuse_conn___chan *)connection, mounts.next);

	if (!first || first == connection + bpf_core_field_offset(struct fuse_conn___chan, mounts))
		return 0;	/* no mount is left */

	void *mount = first - bpf_core_field_offset(struct fuse_mount___chan, fc_entry);

	return BPF_CORE_READ((struct fuse_mount *)mount, sb);
}

#endif

#endif
