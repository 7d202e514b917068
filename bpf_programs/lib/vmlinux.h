/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause)
 *
 * The kernel's types as far as the programs here look at them. Only names and members matter: CO-RE relocates
 * every access to where the running kernel has it, so order, gaps and sizes below mean nothing. A member that
 * kernels call differently stands in a flavour of its own (`struct name___flavour`), see compat.bpf.h.
 */
#ifndef JOBLENS_VMLINUX_H
#define JOBLENS_VMLINUX_H

typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef int pid_t;
typedef unsigned int uid_t;
typedef _Bool bool;
enum { false = 0, true = 1 };

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_RB_NO_WAKEUP = 1U << 0, BPF_RB_FORCE_WAKEUP = 1U << 1, BPF_RB_AVAIL_DATA = 0 };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_MMAPABLE = 1U << 10 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct { int counter; } atomic_t;

struct kernfs_node { u64 id; const char *name; };
struct cgroup { int level; struct kernfs_node *kn; struct cgroup *ancestors[1]; };
struct css_set { struct cgroup *dfl_cgrp; };

struct rq { u64 clock; };
struct cfs_rq { struct rq *rq; };
struct sched_entity { u64 sum_exec_runtime; struct cfs_rq *cfs_rq; };
struct task_io_accounting { u64 rchar, wchar, syscr, syscw, read_bytes, write_bytes; };
struct sched_info { unsigned long long run_delay, last_arrival; };
struct signal_struct {
	atomic_t live;
	int nr_threads;
	int group_exit_code;
	unsigned int flags;
	unsigned long maxrss;
	unsigned long long sum_sched_runtime;
	struct mm_struct *oom_mm;
};
struct percpu_counter { s64 count; };
struct mm_struct { unsigned long hiwater_rss, arg_start, arg_end; struct percpu_counter rss_stat[4]; };

struct ns_common { unsigned int inum; };
struct pid_namespace { struct ns_common ns; };
struct upid { int nr; struct pid_namespace *ns; };
struct pid { unsigned int level; struct upid numbers[1]; };
struct kernel_siginfo { int si_code; };

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int exit_code;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	u64 start_time;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	struct css_set *cgroups;
	struct sched_entity se;
	void *stack;
	struct files_struct *files;
	struct fs_struct *fs;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs { unsigned long di, si, dx, r10, r8, orig_ax; u16 cs; };
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs { u64 regs[31]; u64 pstate; u64 orig_x0; s32 syscallno; };
#endif

struct file_system_type { const char *name; };
struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	struct block_device *s_bdev;
	const char *s_subtype;
};
struct inode { u16 i_mode; u32 i_rdev; struct super_block *i_sb; unsigned long i_ino; };
struct file { struct inode *f_inode; void *private_data; };
struct linux_binprm { struct file *file; };
struct fdtable { unsigned int max_fds; struct file **fd; };
struct files_struct { struct fdtable *fdt; };
struct vfsmount { struct super_block *mnt_sb; };
struct path { struct vfsmount *mnt; };
struct fs_struct { struct path root; struct path pwd; };
struct poll_table_entry { struct file *filp; };

struct io_uring_task { struct task_struct *task; };
struct io_uring_cqe { s32 res; };
struct io_cqe { u64 user_data; };
struct io_kiocb { struct file *file; u8 opcode; struct io_cqe cqe; struct io_uring_task *tctx; };

struct sock_cgroup_data { struct cgroup *cgroup; };
struct in6_addr { union { u8 u6_addr8[16]; } in6_u; };
struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	unsigned long skc_flags;
};
struct sock {
	struct sock_common __sk_common;
	int sk_err;
	u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
};
struct socket { struct sock *sk; };
struct inet_sock { struct sock sk; __be16 inet_sport; };
struct inet_connection_sock { struct inet_sock icsk_inet; };
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 bytes_sent;
	u64 bytes_retrans;
	u64 bytes_received;
	u32 srtt_us;
	u32 total_retrans;
};

struct bpf_iter_meta { u64 session_id; };
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; };
struct bpf_iter__tcp { struct bpf_iter_meta *meta; struct sock_common *sk_common; };

typedef void (*btf_trace_sched_process_exit)(void *data, struct task_struct *task, bool group_dead);

struct bpf_pidns_info { u32 pid; u32 tgid; };

#pragma clang attribute pop

#endif
