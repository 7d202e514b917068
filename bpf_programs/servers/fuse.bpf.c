// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* FUSE: each request to a daemon and its answer, for whoever caused it.
 *
 * From 6.12 on the kernel has tracepoints at both. Before, kprobes are at the functions that make requests and end them.
 * A request without an answer (FORGET, INTERRUPT) is none, and neither is what is answered from a cache.
 */
#include "servers.bpf.h"
#include "reading_calls.bpf.h"

enum {	/* include/uapi/linux/fuse.h */
	FUSE_OPEN = 14, FUSE_READ = 15, FUSE_WRITE = 16, FUSE_INIT = 26, FUSE_CREATE = 35, OUT_HEADER_BYTES = 16,
};
enum { O_ACCMODE = 3 };
enum { FR_BACKGROUND = 2 };	/* fs/fuse/fuse_i.h: number of a bit */
enum { TYPE_NAME_BYTES = 20 };

/* Type of a file system as mountinfo writes it, and its class. All others are of class FUSE. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, char[FUSE_TYPE_BYTES]);
	__type(value, u32);
} jl_fuse_types SEC(".maps");

enum { NOT_A_SERVER = 0xffff };	/* as a class: virtiofs, the disk of a virtual machine */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, u32);		/* device number: those of what is unmounted are used again */
	__type(value, struct fuse_mounted);
} jl_fuse_mounts SEC(".maps");

struct asked { u64 ns; struct owner owner; u64 unasked; };	/* `unasked`: by no call that reads */

/* Requests that wait for their answers, by the address of the request or its arguments. One that was taken back never
 * ends; its address is soon another's. Without room a request is nobody's, and its time unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct asked);
} jl_fuse_asked SEC(".maps");

/* Whose the threads are that sent requests last. The daemon's answer to one request sends another that had to wait,
 * and there the number of the thread is all that tells whose it is. */
struct thread_key { u64 pid_namespace; u64 pid; };
struct thread { struct owner owner; u64 unasked; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct thread_key);
	__type(value, struct thread);
} jl_fuse_threads SEC(".maps");

/* Who opened a file for writing last: the kernel writes what was left in its cache by threads of its own. */
struct file_key { u64 connection; u64 node; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct file_key);
	__type(value, struct owner);
} jl_fuse_writers SEC(".maps");

/* Of a request's header what is looked at: a structure of ours, since CO-RE moves the members of the kernel's own. */
struct head { u64 node; u32 opcode; u32 pid; };

static __always_inline void read_type(struct super_block *sb, char *type)
{
	const char *subtype = BPF_CORE_READ(sb, s_subtype);
	long length = bpf_probe_read_kernel_str(type, TYPE_NAME_BYTES, BPF_CORE_READ(sb, s_type, name));

	if (subtype && length > 1 && length <= TYPE_NAME_BYTES) {
		type[length - 1] = '.';
		bpf_probe_read_kernel_str(type + length, FUSE_TYPE_BYTES - TYPE_NAME_BYTES, subtype);
	}
}

/* The mount that a request is for: its class, and in `key` what tells it apart. */
static __always_inline struct fuse_mounted *mount_of(struct fuse_req *req, u32 opcode, u32 *device)
{
	struct super_block *sb = fuse_super_block(req);
	u64 connection = (u64)fuse_connection(req);
	struct fuse_mounted *known, found = { .connection = connection, .class = SERVER_FUSE };
	u32 *class;

	if (!sb)
		return 0;
	*device = BPF_CORE_READ(sb, s_dev);
	known = bpf_map_lookup_elem(&jl_fuse_mounts, device);
	/* a device number is another's soon after an unmount */
	if (known && known->connection == connection && opcode != FUSE_INIT)
		return known;
	if (known || opcode == FUSE_INIT)
		found.began_ms = bpf_ktime_get_ns() / 1000000;
	read_type(sb, found.type);
	class = bpf_map_lookup_elem(&jl_fuse_types, found.type);
	if (class)
		found.class = *class;
	bpf_map_update_elem(&jl_fuse_mounts, device, &found, BPF_ANY);
	return bpf_map_lookup_elem(&jl_fuse_mounts, device);
}

/* The number of a thread in a pid namespace; 0 where it has none there. */
static __always_inline u32 pid_in(struct task_struct *task, struct pid_namespace *namespace)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u32 level = BPF_CORE_READ(namespace, level);
	u32 offset = bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid);

	if (!pid || level > BPF_CORE_READ(pid, level))
		return 0;

	struct upid *its = (void *)pid + offset;

	return BPF_CORE_READ(its, ns) == namespace ? BPF_CORE_READ(its, nr) : 0;
}

static __always_inline void keep_writer(u64 connection, u64 node, struct owner *owner)
{
	struct file_key key = { connection, node };
	struct owner *known = bpf_map_lookup_elem(&jl_fuse_writers, &key), several = {};

	several.more = SEVERAL;
	if (known && !same_owner(known, owner) && (known->more == SEVERAL || counters_of_owner(known)))
		bpf_map_update_elem(&jl_fuse_writers, &key, &several, BPF_ANY);
	else if (owner->cgroup_id || known)
		bpf_map_update_elem(&jl_fuse_writers, &key, owner, BPF_ANY);
}

/* If this request opens a file for writing. */
static __always_inline void keep_opener(struct fuse_args *args, u32 opcode, u64 connection, u64 node, struct owner *owner)
{
	u32 flags = 0;

	if (opcode != FUSE_OPEN)
		return;
	bpf_probe_read_kernel(&flags, sizeof(flags), BPF_CORE_READ(args, in_args[0].value));
	if (flags & O_ACCMODE)
		keep_writer(connection, node, owner);
}

static __always_inline struct owner writer_of(u64 connection, u64 node)
{
	struct file_key key = { connection, node };
	struct owner nobody = {}, *known = bpf_map_lookup_elem(&jl_fuse_writers, &key);

	return known ? *known : nobody;
}

/* Remembers whose the thread is that sends a request, and by what; forgets it if it is nobody's. */
static __always_inline void keep_thread(const struct thread_key *key, const struct asked *asked)
{
	struct thread *known = bpf_map_lookup_elem(&jl_fuse_threads, key);
	struct thread thread = { .owner = asked->owner, .unasked = asked->unasked };

	if (!thread.owner.cgroup_id) {
		if (known)
			bpf_map_delete_elem(&jl_fuse_threads, key);
	} else if (!known || !same_owner(&known->owner, &thread.owner) || known->unasked != thread.unasked) {
		bpf_map_update_elem(&jl_fuse_threads, key, &thread, BPF_ANY);
	}
}

/* Whose a request is that goes to the daemon here and now. A request of the background can be sent by the thread that
 * caused it, or while the daemon answers another one; then its header tells which thread that was. What that thread
 * did then is taken to be what it did at its request before. A header without a thread is that of a kernel thread, or
 * of a file that is closed; from 7.2 on it names kernel threads too. */
static __always_inline void find_owner(struct fuse_req *req, const struct head *head, u64 connection, struct asked *asked)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct pid_namespace *namespace = BPF_CORE_READ((struct fuse_conn *)connection, pid_ns);
	struct thread_key key = { (u64)namespace, head->pid };
	bool waited = BPF_CORE_READ(req, flags) >> FR_BACKGROUND & 1 && head->pid && pid_in(task, namespace) != head->pid;

	if (waited) {
		struct thread *known = bpf_map_lookup_elem(&jl_fuse_threads, &key);

		if (known) {
			asked->owner = known->owner;
			asked->unasked = known->unasked;
		}
		return;
	}
	asked->owner = owner_of_task(task);
	if (!asked->owner.cgroup_id && (!head->pid || BPF_CORE_READ(task, flags) & PF_KTHREAD)) {
		asked->owner = writer_of(connection, head->node);
		return;
	}
	asked->unasked = head->opcode == FUSE_READ && asked->owner.cgroup_id && reads_unasked();
	if (head->pid)
		keep_thread(&key, asked);
}

SEC("raw_tp/fuse_request_send")
int BPF_PROG(jl_fuse_send, struct fuse_req *req)
{
	u64 id = (u64)req, connection = (u64)fuse_connection(req);
	struct head head = {
		.node = BPF_CORE_READ(req, in.h.nodeid),
		.opcode = BPF_CORE_READ(req, in.h.opcode),
		.pid = BPF_CORE_READ(req, in.h.pid),
	};
	struct asked asked = { .ns = bpf_ktime_get_ns() };

	find_owner(req, &head, connection, &asked);
	keep_opener(BPF_CORE_READ(req, args), head.opcode, connection, head.node, &asked.owner);
	bpf_map_update_elem(&jl_fuse_asked, &id, &asked, BPF_ANY);
	return 0;
}

static __always_inline void count_end(struct fuse_req *req, u64 id)
{
	u32 opcode = BPF_CORE_READ(req, in.h.opcode), device = 0;
	s32 error = BPF_CORE_READ(req, out.h.error);
	struct fuse_mounted *mounted = mount_of(req, opcode, &device);
	struct asked *asked = bpf_map_lookup_elem(&jl_fuse_asked, &id);
	struct owner owner = {};
	struct server_key key = {};
	bool unasked = false;
	struct answered answered = {
		.sent = BPF_CORE_READ(req, in.h.len),
		.received = BPF_CORE_READ(req, out.h.len),
		.failed = error < 0,
	};

	if (asked) {
		owner = asked->owner;
		unasked = asked->unasked;
		answered.ns = bpf_ktime_get_ns() - asked->ns;
		bpf_map_delete_elem(&jl_fuse_asked, &id);
	}
	if (!mounted || mounted->class == NOT_A_SERVER)
		return;
	if (opcode == FUSE_CREATE && !error) {
		void *out = BPF_CORE_READ(req, args, out_args[0].value);
		u64 node = 0;

		bpf_probe_read_kernel(&node, sizeof(node), out);
		keep_writer(mounted->connection, node, &owner);
	}
	key.class = mounted->class;
	key.address[1] = (u64)mounted->began_ms << 32 | device;
	count_answered(&owner, &key, &answered);
	if (unasked && opcode == FUSE_READ && answered.received > OUT_HEADER_BYTES)
		count_mapped(&owner, key.class, answered.received - OUT_HEADER_BYTES);
}

SEC("raw_tp/fuse_request_end")
int BPF_PROG(jl_fuse_end, struct fuse_req *req)
{
	count_end(req, (u64)req);
	return 0;
}

#ifndef BY_CHANNEL
/* --- Before 6.12 --- */

/* `args` are told apart by their address: the request has it until its end. */
static __always_inline void begin_asked(struct fuse_mount *mount, struct fuse_args *args)
{
	u64 id = (u64)args, connection = (u64)BPF_CORE_READ(mount, fc), node = BPF_CORE_READ(args, nodeid);
	struct asked asked = { .ns = bpf_ktime_get_ns(), .owner = owner_of_task((void *)bpf_get_current_task()) };

	u32 opcode = BPF_CORE_READ(args, opcode);

	if (!asked.owner.cgroup_id)
		asked.owner = writer_of(connection, node);
	else
		asked.unasked = opcode == FUSE_READ && reads_unasked();
	keep_opener(args, opcode, connection, node, &asked.owner);
	bpf_map_update_elem(&jl_fuse_asked, &id, &asked, BPF_ANY);
}

#if defined(__TARGET_ARCH_x86)
#define FIRST(regs) ((void *)(regs)->di)
#define SECOND(regs) ((void *)(regs)->si)
#elif defined(__TARGET_ARCH_arm64)
#define FIRST(regs) ((void *)(regs)->regs[0])
#define SECOND(regs) ((void *)(regs)->regs[1])
#endif

SEC("kprobe/fuse_simple_request")
int jl_fuse_ask(struct pt_regs *regs)
{
	begin_asked(FIRST(regs), SECOND(regs));
	return 0;
}

SEC("kprobe/fuse_simple_background")
int jl_fuse_ask_bg(struct pt_regs *regs)
{
	begin_asked(FIRST(regs), SECOND(regs));
	return 0;
}

SEC("kprobe/fuse_request_end")
int jl_fuse_answer(struct pt_regs *regs)
{
	struct fuse_req *req = FIRST(regs);

	count_end(req, (u64)BPF_CORE_READ(req, args));
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
