/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which process wanted a connection that did not come about: for whoever asks why it ended.
 *
 * A refusal comes with a packet and a time-out with a timer, when any process may have the CPU. So who wants a connection
 * is kept from its beginning to its outcome. A connection that comes about clears what its process has failed at: sound
 * programs try one address after the other.
 */
#ifndef JOBLENS_CONNECTORS_BPF_H
#define JOBLENS_CONNECTORS_BPF_H

#include "endpoints.bpf.h"

enum { MOST_CONNECTING = 4096 };

/* Of a node all together: of one that finds no room the oldest is forgotten, and nothing is blamed on it. */
struct connecting { u64 since_ns; u32 slot; u32 tgid; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_CONNECTING);
	__type(key, u64);		/* struct sock *; or a process (tgid): when it was connected last */
	__type(value, struct connecting);
} jl_connecting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u32);		/* slot × FAILING_CONNECTORS + place of the process */
	__type(value, struct failed_connections);
} jl_unconnected SEC(".maps");

/* A program that waits for so long, and then gives up, had no answer. */
static const u64 PATIENCE_NS = 1000000000;

static __always_inline u32 connector_key(const struct connecting *wanted)
{
	return wanted->slot * FAILING_CONNECTORS + wanted->tgid % FAILING_CONNECTORS;
}

/* The current process wants a connection. */
static __always_inline void begins_connecting(const struct sock *sk, u32 slot)
{
	struct connecting wanted = {
		.since_ns = bpf_ktime_get_ns(), .slot = slot, .tgid = bpf_get_current_pid_tgid() >> 32,
	};
	u64 key = (u64)sk;

	bpf_map_update_elem(&jl_connecting, &key, &wanted, BPF_ANY);
}

/* It has it. */
static __always_inline void is_connected(const struct sock *sk)
{
	u64 key = (u64)sk, process;
	struct connecting *wanted = bpf_map_lookup_elem(&jl_connecting, &key), connected;

	if (!wanted)
		return;
	connected = *wanted;
	connected.since_ns = bpf_ktime_get_ns();
	bpf_map_delete_elem(&jl_connecting, &key);
	process = connected.tgid;
	bpf_map_update_elem(&jl_connecting, &process, &connected, BPF_ANY);

	u32 place = connector_key(&connected);
	struct failed_connections *failed = bpf_map_lookup_elem(&jl_unconnected, &place);

	if (!failed || failed->tgid != connected.tgid)
		return;
	for (int i = 0; i < FAILED_CONNECTIONS; i++)
		failed->last[i].time_ns = 0;
}

/* It does not get it; `error` is 0 if the process itself has given up. An entry is replaced as a whole, so that no reader
 * sees half of one. */
static __always_inline void is_unconnected(const struct sock *sk, const struct endpoint_key *peer, int error)
{
	u64 key = (u64)sk, now = bpf_ktime_get_ns(), process;
	struct connecting *found = bpf_map_lookup_elem(&jl_connecting, &key), wanted;
	struct failed_connections failed = { .tgid = 0 }, *before;

	if (!found)
		return;
	wanted = *found;
	bpf_map_delete_elem(&jl_connecting, &key);
	if (!error) {
		/* one address of several, while another has answered */
		process = wanted.tgid;
		found = bpf_map_lookup_elem(&jl_connecting, &process);
		if (now - wanted.since_ns < PATIENCE_NS || (found && found->since_ns >= wanted.since_ns))
			return;
		error = ETIMEDOUT;
	}

	u32 place = connector_key(&wanted);

	before = bpf_map_lookup_elem(&jl_unconnected, &place);
	if (before && before->tgid == wanted.tgid)
		for (int i = 1; i < FAILED_CONNECTIONS; i++)
			failed.last[i] = before->last[i - 1];
	failed.tgid = wanted.tgid;
	failed.last[0] = (struct failed_connection){
		.time_ns = now, .address = { peer->address[0], peer->address[1] }, .port = peer->port, .error = error,
	};
	bpf_map_update_elem(&jl_unconnected, &place, &failed, BPF_ANY);
}

#endif
