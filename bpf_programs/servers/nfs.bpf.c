// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* NFS: each request that a server has answered, for whoever caused it.
 *
 * The client keeps statistics of each mount (/proc/PID/mountstats). Where it adds an answered request to them there is a
 * tracepoint, mostly in a thread of the kernel; whose the request is, is known where it began.
 */
#include "servers.bpf.h"
#include "reading_calls.bpf.h"

enum { NFS_PROGRAM = 100003, AF_INET = 2, AF_INET6 = 10, NFS_3 = 3, NFS_4 = 4 };
enum {	/* rpc_procinfo.p_statidx: of version 3 the procedure, of version 4 include/linux/nfs4.h */
	READ_3 = 6, WRITE_3 = 7, COMMIT_3 = 21, READ_4 = 1, WRITE_4 = 2, COMMIT_4 = 3,
};

/* Whose the processes are that began requests last, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct owner);
} jl_nfs_procs SEC(".maps");

/* The same by their open files (struct files_struct *), by which the client tells apart who wrote what it keeps. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct owner);
} jl_nfs_files SEC(".maps");

/* Requests on their way for which no reading call has asked, by the address of their struct rpc_task. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, u8);
} jl_nfs_unasked SEC(".maps");

static __always_inline bool is_nfs(struct rpc_task *rpc)
{
	return BPF_CORE_READ(rpc, tk_client, cl_prog) == NFS_PROGRAM;
}

static __always_inline bool is_read(struct rpc_task *rpc)
{
	u32 version = BPF_CORE_READ(rpc, tk_client, cl_vers), call = BPF_CORE_READ(rpc, tk_msg.rpc_proc, p_statidx);

	return (version == NFS_3 && call == READ_3) || (version == NFS_4 && call == READ_4);
}

/* Another request can have had that address, and never been answered. */
static __always_inline void keep_unasked(struct rpc_task *rpc)
{
	u64 id = (u64)rpc;
	u8 one = 1;

	if (is_read(rpc) && reads_unasked())
		bpf_map_update_elem(&jl_nfs_unasked, &id, &one, BPF_ANY);
	else
		bpf_map_delete_elem(&jl_nfs_unasked, &id);
}

SEC("raw_tp/rpc_task_begin")
int BPF_PROG(jl_nfs_begin, struct rpc_task *rpc)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 process = bpf_get_current_pid_tgid() >> 32;
	u64 files = (u64)BPF_CORE_READ(task, files);
	struct owner owner;

	if (!is_nfs(rpc) || !BPF_CORE_READ(task, mm))
		return 0;	/* threads of the kernel have no memory of their own */
	owner = owner_of_task(task);
	keep_owner(&jl_nfs_procs, &process, &owner);
	if (files)
		keep_owner(&jl_nfs_files, &files, &owner);
	keep_unasked(rpc);
	return 0;
}

/* The open files of whoever wrote what this request brings to the server, or opened the file; 0: it brings nothing. */
static __always_inline u64 files_of_writer(struct rpc_task *rpc)
{
	u32 version = BPF_CORE_READ(rpc, tk_client, cl_vers), call = BPF_CORE_READ(rpc, tk_msg.rpc_proc, p_statidx);
	void *data = BPF_CORE_READ(rpc, tk_calldata);

	if (!data)
		return 0;
	if ((version == NFS_3 && call == WRITE_3) || (version == NFS_4 && call == WRITE_4))
		return (u64)BPF_CORE_READ((struct nfs_pgio_header *)data, req, wb_lock_context, lockowner);
	if ((version == NFS_3 && call == COMMIT_3) || (version == NFS_4 && call == COMMIT_4))
		return (u64)BPF_CORE_READ((struct nfs_commit_data *)data, context, lock_context.lockowner);
	return 0;
}

static __always_inline struct owner owner_of_request(struct rpc_task *rpc)
{
	u32 process = BPF_CORE_READ(rpc, tk_owner);
	struct owner nobody = {}, *known = bpf_map_lookup_elem(&jl_nfs_procs, &process);

	if (!known) {
		u64 files = files_of_writer(rpc);

		if (files)
			known = bpf_map_lookup_elem(&jl_nfs_files, &files);
	}
	return known ? *known : nobody;
}

/* The address of the server, as in endpoint_key; false where it has none. */
static __always_inline bool read_server(struct rpc_rqst *request, struct server_key *key)
{
	struct rpc_xprt *transport = BPF_CORE_READ(request, rq_xprt);
	void *address = (void *)transport + bpf_core_field_offset(struct rpc_xprt, addr);
	u16 family = 0;
	__be16 port = 0;
	u32 four = 0;

	if (!transport)
		return false;
	bpf_probe_read_kernel(&family, sizeof(family), address);
	bpf_probe_read_kernel(&port, sizeof(port), address + 2);
	key->port = bpf_ntohs(port);
	if (family == AF_INET) {
		bpf_probe_read_kernel(&four, sizeof(four), address + 4);
		key->address[1] = bpf_htonl(0xffff) | (u64)four << 32;
	} else if (family == AF_INET6) {
		bpf_probe_read_kernel(key->address, sizeof(key->address), address + 8);
	}
	return family == AF_INET || family == AF_INET6;
}

SEC("raw_tp/rpc_stats_latency")
int BPF_PROG(jl_nfs_answer, struct rpc_task *rpc, s64 backlog, s64 round_trip, s64 whole)
{
	struct rpc_rqst *request = BPF_CORE_READ(rpc, tk_rqstp);
	struct server_key key = {};
	struct answered answered = {
		.sent = BPF_CORE_READ(request, rq_xmit_bytes_sent),
		.received = BPF_CORE_READ(request, rq_reply_bytes_recvd),
		.ns = round_trip > 0 ? round_trip : 0,
		.failed = BPF_CORE_READ(rpc, tk_status) < 0,
	};
	s32 status = BPF_CORE_READ(rpc, tk_status);	/* of what reads: bytes */
	u64 id = (u64)rpc;
	struct owner owner;

	if (!is_nfs(rpc) || !read_server(request, &key))
		return 0;
	key.class = SERVER_NFS;
	owner = owner_of_request(rpc);
	count_answered(&owner, &key, &answered);
	if (bpf_map_delete_elem(&jl_nfs_unasked, &id) == 0 && status > 0)
		count_mapped(&owner, SERVER_NFS, status);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
