/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What a slot's connections did, by their other end.
 *
 * Entries are bounded twice: for each slot, and all together. A connection that finds no entry is in its slot's total
 * alone, and so is what an entry held that the agent drops: total minus entries is the slot's rest, whatever happens.
 */
#ifndef JOBLENS_ENDPOINTS_BPF_H
#define JOBLENS_ENDPOINTS_BPF_H

#include "slots.bpf.h"

enum { AF_INET = 2 };

/* Memory is taken when a slot needs it: at level basic there is none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct endpoint_key);
	__type(value, struct endpoint);
} jl_endpoints SEC(".maps");

/* Once true for a slot it stays so: what was open at level io and is counted may close when the level is lower. */
static __always_inline bool is_by_endpoint(struct slot_counters *count)
{
	if (count->by_endpoint)
		return true;
	if (count->level < LEVEL_IO)
		return false;
	count->by_endpoint = 1;
	return true;
}

static __always_inline u16 local_port(const struct sock *sk)
{
	/* the other field that has it, skc_num, is 0 by the time the connection has closed */
	return bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
}

static __always_inline bool is_service(const struct slot_counters *count, u16 port)
{
	for (u32 i = 0; i < MAX_SERVICES; i++)
		if (count->services[i] == port)
			return true;
	return false;
}

/* Two CPUs at once can take the same place: one port is then seen anew at its next connection, or in the next walk. */
static __always_inline void serves(struct slot_counters *count, const struct sock *sk)
{
	u16 port = local_port(sk);

	if (is_service(count, port))
		return;
	count->services[count->services_seen % MAX_SERVICES] = port;
	count->services_seen++;
}

/* `began_here`: it is known that this side asked for the connection. */
static __always_inline struct endpoint_key key_of(struct slot_counters *count, const struct sock *sk, bool began_here)
{
	struct endpoint_key key = { .cgroup_id = count->cgroup_id, .kind = ENDPOINT_COUNTED };

	if (BPF_CORE_READ(sk, __sk_common.skc_family) == AF_INET)
		key.address[1] = bpf_htonl(0xffff) | (u64)BPF_CORE_READ(sk, __sk_common.skc_daddr) << 32;
	else
		BPF_CORE_READ_INTO(&key.address, sk, __sk_common.skc_v6_daddr);
	if (began_here || !is_service(count, local_port(sk)))
		key.port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	return key;
}

static __always_inline bool is_loopback(const struct endpoint_key *key)
{
	if (key->address[0])
		return false;
	if ((u32)key->address[1] == bpf_htonl(0xffff))
		return (u8)(key->address[1] >> 32) == 127;
	return key->address[1] == bpf_cpu_to_be64(1);
}

/* The entry of an endpoint; 0 where there is none, and no room for one. */
static __always_inline struct endpoint *entry_of(struct slot_counters *count, struct endpoint_key *key)
{
	struct endpoint *endpoint = bpf_map_lookup_elem(&jl_endpoints, key);
	struct endpoint nothing = {};

	if (endpoint || count->endpoints_made - count->endpoints_dropped >= MAX_ENDPOINTS)
		return endpoint;
	if (bpf_map_update_elem(&jl_endpoints, key, &nothing, BPF_NOEXIST) == 0)
		ADD(count->endpoints_made, 1);
	return bpf_map_lookup_elem(&jl_endpoints, key);
}

#endif
