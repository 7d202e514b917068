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
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_RB_NO_WAKEUP = 1U << 0, BPF_RB_FORCE_WAKEUP = 1U << 1, BPF_RB_AVAIL_DATA = 0, BPF_RB_RING_SIZE = 1 };
enum bpf_func_id { BPF_FUNC_task_pt_regs = 175 };
enum { BPF_F_USER_STACK = 1U << 8 };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_MMAPABLE = 1U << 10, BPF_F_INNER_MAP = 1U << 12 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t;

struct kernfs_node { u64 id; const char *name; };
struct cgroup { int level; struct kernfs_node *kn; struct cgroup *ancestors[1]; };
struct css_set { struct cgroup *dfl_cgrp; };

struct rq { u64 clock, clock_task; };
struct cfs_rq { struct rq *rq; };
struct sched_entity { u64 exec_start, sum_exec_runtime; struct cfs_rq *cfs_rq; };
struct task_io_accounting { u64 rchar, wchar, syscr, syscw, read_bytes, write_bytes; };
struct sched_info { unsigned long long run_delay, last_arrival; };
struct rlimit { unsigned long rlim_cur, rlim_max; };
struct task_cputime_atomic { atomic64_t utime, stime; };
struct thread_group_cputimer { struct task_cputime_atomic cputime_atomic; };
struct signal_struct {
	atomic_t live;
	int nr_threads;
	int group_exit_code;
	unsigned int flags;
	unsigned long maxrss;
	unsigned long long sum_sched_runtime;
	struct thread_group_cputimer cputimer;
	struct rlimit rlim[16];
	struct mm_struct *oom_mm;
};
struct percpu_counter { s64 count; };
struct list_head { struct list_head *next, *prev; };
struct task_struct;
struct mm_struct {
	unsigned long hiwater_rss, total_vm, arg_start, arg_end, flags;
	struct percpu_counter rss_stat[4];
	struct task_struct *owner;
	struct file *exe_file;
};

struct ns_common { unsigned int inum; };
struct pid_namespace { struct ns_common ns; unsigned int level; };
struct upid { int nr; struct pid_namespace *ns; };
struct pid { unsigned int level; struct upid numbers[1]; };
struct kernel_siginfo { int si_code; };
struct sigaction { void *sa_handler; };
struct k_sigaction { struct sigaction sa; };

typedef struct { uid_t val; } kuid_t;
struct cred { kuid_t uid, suid, euid, fsuid; };

#if defined(__TARGET_ARCH_x86)
struct thread_struct { unsigned long fsbase; };
#elif defined(__TARGET_ARCH_arm64)
struct thread_struct { struct { unsigned long tp_value; } uw; };
#endif

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int exit_state;
	int exit_code;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct list_head thread_node;
	u64 start_time;
	u64 self_exec_id;
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
	unsigned int on_cpu;	/* int before 7.2: libbpf reads a smaller number for a larger one if both are unsigned */
	struct nameidata *nameidata;
	const struct cred *cred, *real_cred;
	char comm[16];
	struct thread_struct thread;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs { unsigned long di, si, dx, r10, r8, r9, orig_ax, bp, ip, sp; u16 cs; };
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs { u64 regs[31]; u64 sp, pc, pstate; u64 orig_x0; s32 syscallno; };
#endif

struct file_system_type { const char *name; };
struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	struct block_device *s_bdev;
	const char *s_subtype;
};
struct inode { u16 i_mode; u32 i_rdev; struct super_block *i_sb; unsigned long i_ino; };
struct qstr { const unsigned char *name; };
struct dentry { struct dentry *d_parent; struct qstr d_name; struct inode *d_inode; };
struct linux_binprm { struct file *file; };
struct fdtable { unsigned int max_fds; struct file **fd; };
struct files_struct { struct fdtable *fdt; };
struct vfsmount { struct dentry *mnt_root; struct super_block *mnt_sb; };
struct mount { struct mount *mnt_parent; struct dentry *mnt_mountpoint; struct vfsmount mnt; };
struct path { struct vfsmount *mnt; struct dentry *dentry; };
struct file { struct inode *f_inode; struct path f_path; void *private_data; };
struct vm_area_struct { unsigned long vm_start, vm_end, vm_pgoff; struct file *vm_file; };
struct fs_struct { struct path root; struct path pwd; };
struct filename { const char *name; };
struct open_flags { int open_flag; };
struct nameidata { struct path path; };
struct poll_table_entry { struct file *filp; };

struct fuse_in_header { u32 len; u32 opcode; u64 nodeid; u32 pid; };
struct fuse_out_header { u32 len; s32 error; };
struct fuse_in_arg { unsigned int size; const void *value; };
struct fuse_arg { unsigned int size; void *value; };
struct fuse_args { u64 nodeid; u32 opcode; struct fuse_in_arg in_args[1]; struct fuse_arg out_args[1]; };
struct fuse_conn { struct pid_namespace *pid_ns; };
struct fuse_mount { struct fuse_conn *fc; struct super_block *sb; };
struct fuse_req {
	struct fuse_args *args;
	unsigned long flags;
	struct { struct fuse_in_header h; } in;
	struct { struct fuse_out_header h; } out;
	struct fuse_mount *fm;
};

struct rpc_procinfo { u32 p_statidx; };
struct rpc_message { const struct rpc_procinfo *rpc_proc; };
struct rpc_clnt { u32 cl_prog; u32 cl_vers; };
struct rpc_address { u8 bytes[28]; };
struct rpc_xprt { struct rpc_address addr; };
struct rpc_rqst { struct rpc_xprt *rq_xprt; unsigned long rq_xmit_bytes_sent; unsigned long rq_reply_bytes_recvd; };
struct rpc_task {
	struct rpc_clnt *tk_client;
	struct rpc_rqst *tk_rqstp;
	struct rpc_message tk_msg;
	void *tk_calldata;
	pid_t tk_owner;
	int tk_status;
};
struct nfs_lock_context { void *lockowner; };
struct nfs_open_context { struct nfs_lock_context lock_context; };
struct nfs_page { struct nfs_lock_context *wb_lock_context; };
struct nfs_pgio_header { struct nfs_page *req; };
struct nfs_commit_data { struct nfs_open_context *context; };

struct io_uring_task { struct task_struct *task; };
struct io_uring_cqe { s32 res; };
struct io_cqe { u64 user_data; };
struct io_kiocb { struct file *file; u8 opcode; u32 flags; struct io_cqe cqe; struct io_uring_task *tctx; };

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
	u32 snd_nxt;
	u32 write_seq;
	u32 srtt_us;
	u32 total_retrans;
};

struct bpf_iter_meta { struct seq_file *seq; u64 session_id; u64 seq_num; };
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; };
struct bpf_iter__tcp { struct bpf_iter_meta *meta; struct sock_common *sk_common; };

typedef void (*btf_trace_sched_process_exit)(void *data, struct task_struct *task, bool group_dead);

struct bpf_pidns_info { u32 pid; u32 tgid; };

#pragma clang attribute pop

#endif
