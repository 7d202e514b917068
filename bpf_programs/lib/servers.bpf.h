/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What reached file servers, by slot and server.
 *
 * A slot's numbers are added to its totals by class first, and then to the entry of their server, if there is one and
 * there is room. So total minus entries is the slot's rest, whatever the agent drops. What belongs to nobody who is
 * counted goes to the node in the same way: all of it together is what the servers themselves have counted.
 */
#ifndef JOBLENS_SERVERS_BPF_H
#define JOBLENS_SERVERS_BPF_H

#include "slots.bpf.h"

/* Memory is taken when there is a first request. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct server_key);
	__type(value, struct server);
} jl_servers SEC(".maps");

/* Whose a request is. */
struct owner { u64 cgroup_id; u32 slot; u32 more; };	/* cgroup_id 0: nobody's */

enum { SEVERAL = 1 };	/* in `more`: one of several, and not known which */

static __always_inline bool same_owner(const struct owner *one, const struct owner *other)
{
	return one->cgroup_id == other->cgroup_id && one->more == other->more;
}

/* The counters of the slot that the owner means, while it is there. */
static __always_inline struct slot_counters *counters_of_owner(const struct owner *owner)
{
	u32 slot = owner->slot;
	struct slot_counters *count = owner->cgroup_id ? bpf_map_lookup_elem(&jl_counters, &slot) : 0;

	return count && count->cgroup_id == owner->cgroup_id ? count : 0;
}

/* The slot in which a task is, if its job has begun: what the wrapper asks of a server is not the job's. */
static __always_inline struct owner owner_of_task(struct task_struct *task)
{
	struct owner owner = {};
	u32 slot = slot_of(BPF_CORE_READ(task, cgroups, dfl_cgrp));
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	if (count && !count->awaits_exec) {
		owner.slot = slot;
		owner.cgroup_id = count->cgroup_id;
	}
	return owner;
}

/* Remembers whose something is, by a key in a map of owners; forgets whose it was if it is nobody's now. */
static __always_inline void keep_owner(void *map, const void *key, const struct owner *owner)
{
	struct owner *known = bpf_map_lookup_elem(map, key);

	if (!owner->cgroup_id) {
		if (known)
			bpf_map_delete_elem(map, key);
	} else if (!known || !same_owner(known, owner)) {
		bpf_map_update_elem(map, key, owner, BPF_ANY);
	}
}

struct answered { u64 sent, received, ns; bool failed; };

static __always_inline void add_answered(u64 *numbers, const struct answered *answered)
{
	ADD(numbers[SERVER_REQUESTS], 1);
	ADD(numbers[SERVER_SENT_BYTES], answered->sent);
	ADD(numbers[SERVER_RECEIVED_BYTES], answered->received);
	ADD(numbers[SERVER_NS], answered->ns);
	if (answered->failed)
		ADD(numbers[SERVER_ERRORS], 1);
}

/* Counts an answered request for its owner, or for nobody. Of the key only the slot's id is missing. */
static __always_inline void count_answered(const struct owner *owner, struct server_key *key,
					   const struct answered *answered)
{
	struct slot_counters *count = counters_of_owner(owner);
	struct node *node = this_node();
	struct server nothing = {}, *server;
	u32 class = key->class, *made, *dropped;
	u64 most = count ? MAX_SERVERS : MAX_SERVERS_UNATTRIBUTED;

	if (!node || class >= SERVER_CLASSES)
		return;
	add_answered((count ? count->servers : node->unattributed) + class * SERVER_NUMBERS, answered);
	key->cgroup_id = count ? count->cgroup_id : 0;
	server = bpf_map_lookup_elem(&jl_servers, key);
	if (!server) {
		made = count ? &count->servers_made : &node->unattributed_made;
		dropped = count ? &count->servers_dropped : &node->unattributed_dropped;
		if (*made - *dropped >= most)
			return;
		if (bpf_map_update_elem(&jl_servers, key, &nothing, BPF_NOEXIST) == 0)
			ADD(*made, 1);
		server = bpf_map_lookup_elem(&jl_servers, key);
	}
	if (server)
		add_answered(server->numbers, answered);
}

/* Bytes of files among what was answered that no reading call had asked for. Of nobody's they are not counted. */
static __always_inline void count_mapped(const struct owner *owner, u32 class, u64 bytes)
{
	struct slot_counters *count = counters_of_owner(owner);

	if (count && class < SERVER_CLASSES)
		ADD(count->mapped_bytes[class], bytes);
}

#endif
