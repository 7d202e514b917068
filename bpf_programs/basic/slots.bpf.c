// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Slots: births and ends of the cgroups in which HTCondor runs jobs.
 *
 * A slot is taken here, in the kernel, and not by the agent: a job is then counted from its first instruction,
 * also one that starts while the agent is down. Making and removing cgroups is serialised by the kernel's
 * cgroup_mutex, which is held at these tracepoints, so nothing here races with itself.
 */
#include "slots.bpf.h"
#include "servers.bpf.h"	/* the table is made here: it stays while the programs that fill it come and go */

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);		/* slot indices that nobody uses */
} jl_free_slots SEC(".maps");

static __always_inline bool is_base(struct node *node, u64 id)
{
	for (int i = 0; i < BASES; i++)
		if (node->base[i] == id)
			return id != 0;
	return false;
}

static __always_inline bool is_slot(struct node *node, struct cgroup *cgroup)
{
	u32 level = BPF_CORE_READ(cgroup, level);

	return level > 0 && level < MAX_DEPTH && node->slot_depths >> level & 1 &&
	       is_base(node, ancestor_id(cgroup, level - 1));
}

/* Who makes the cgroup, as the agent knows it: the starter, or (before HTCondor 24.8) its child on the way to
 * becoming the job. 0 where it lives in a pid namespace of its own. */
static __always_inline u32 maker(struct node *node)
{
	struct bpf_pidns_info here = {};

	bpf_get_ns_current_pid_tgid(node->pid_namespace_device, node->pid_namespace_inode, &here, sizeof(here));
	return here.tgid;
}

/* The cgroup with this id is counted from now on, by a slot of its own where one is free; which one. */
static __always_inline u32 take(struct node *node, u64 id, u32 pid, struct slot_counters **count)
{
	u64 inode = id & ((1ULL << CGROUP_USES_SHIFT) - 1);
	u32 slot = NO_SLOT;

	if (bpf_map_pop_elem(&jl_free_slots, &slot)) {
		slot = NO_SLOT;
		ADD(node->lost_slots, 1);
	}
	*count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);
	if (!*count)
		return slot;
	/* the agent cleared the totals before it put the index on the queue */
	(*count)->cgroup_id = id;
	(*count)->born_ns = bpf_ktime_get_ns();
	(*count)->maker_pid = pid;
	(*count)->awaits_exec = AWAITS_FIRST;
	(*count)->state = SLOT_LIVE;
	bpf_map_update_elem(&jl_slot_index, &inode, &slot, BPF_ANY);
	return slot;
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(jl_slot_born, struct cgroup *cgroup)
{
	struct node *node = this_node();

	if (!node || !is_slot(node, cgroup))
		return 0;

	struct slot_counters *count;
	u64 id = BPF_CORE_READ(cgroup, kn, id);
	u32 pid = maker(node), slot = take(node, id, pid, &count);

	tell_lender(slot);

	struct event *event = new_event(EVENT_BORN, id, slot);

	if (event) {
		event->pid = pid;
		bpf_probe_read_kernel_str(event->name, sizeof(event->name), BPF_CORE_READ(cgroup, kn, name));
		bpf_ringbuf_submit(event, 0);
	}
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(jl_slot_gone, struct cgroup *cgroup)
{
	struct node *node = this_node();

	if (!node || !is_slot(node, cgroup))
		return 0;

	u64 id = BPF_CORE_READ(cgroup, kn, id);
	u32 *slot = bpf_map_lookup_elem(&jl_slot_index, &id);
	struct slot_counters *count = slot ? bpf_map_lookup_elem(&jl_counters, slot) : 0;

	if (count) {
		count->state = SLOT_GONE;
		id = count->cgroup_id;
	}

	struct event *event = new_event(EVENT_GONE, id, slot ? *slot : NO_SLOT);

	if (event)
		bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("tp_btf/cgroup_notify_populated")
int BPF_PROG(jl_slot_empty, struct cgroup *cgroup, const char *path, int populated)
{
	u64 id = BPF_CORE_READ(cgroup, kn, id);
	u32 *slot = bpf_map_lookup_elem(&jl_slot_index, &id);
	struct slot_counters *count = slot ? bpf_map_lookup_elem(&jl_counters, slot) : 0;

	if (!slot || !count)
		return 0;
	if (populated) {
		count->is_refilled = count->main_exits > 0;
		return 0;
	}
	count->is_refilled = 0;
	/* what its first process left behind has ended as well: the starter is about to look once more */
	if (count->main_exits)
		tell_lender(*slot);

	struct event *event = new_event(EVENT_EMPTY, count->cgroup_id, *slot);

	if (event)
		bpf_ringbuf_submit(event, 0);
	return 0;
}

/* Whether the current process is one of HTCondor's, as root: a starter, or what it has forked to become the job. No job
 * can be: to bring a process into a slot from outside takes root's rights. */
static __always_inline bool is_htcondors(void)
{
	char name[PROGRAM_BYTES] = {};

	bpf_get_current_comm(name, sizeof(name));
	return !(u32)bpf_get_current_uid_gid() && name[0] == 'c' && name[1] == 'o' && name[2] == 'n' &&
	       name[3] == 'd' && name[4] == 'o' && name[5] == 'r' && name[6] == '_';
}

/* A process has been brought into a cgroup. Where that is a slot whose first process has ended, HTCondor has left the
 * cgroup of that job behind, and this is the next job: it is counted by a slot of its own, from nothing on. What lives of
 * the earlier job is older than this moment, and is not counted any more (process.bpf.c). A process that is forked does
 * not come here, so a job's own never begin another one. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(jl_slot_entered, struct cgroup *to, const char *path, struct task_struct *task)
{
	struct node *node = this_node();
	u32 before = slot_of(to), slot;
	struct slot_counters *earlier, *count;

	earlier = before == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &before);
	if (!node || !earlier || !earlier->main_exits || earlier->state != SLOT_LIVE || !is_htcondors())
		return 0;

	u64 inode = earlier->cgroup_id & ((1ULL << CGROUP_USES_SHIFT) - 1);
	u64 uses = (earlier->cgroup_id >> CGROUP_USES_SHIFT) + 1;
	u64 id = inode | (uses & (CGROUP_USES - 1)) << CGROUP_USES_SHIFT;
	u32 pid = maker(node);

	earlier->state = SLOT_LEFT;
	slot = take(node, id, pid, &count);
	if (count) {
		count->since_ns = count->born_ns;
		count->entered_tgid = BPF_CORE_READ(task, tgid);
		count->entered_shared = !earlier->is_refilled;
	} else {
		bpf_map_delete_elem(&jl_slot_index, &inode);
	}
	tell_lender(slot);

	/* without a name: the cgroup has been told before */
	struct event *event = new_event(EVENT_BORN, id, slot);

	if (event) {
		event->pid = pid;
		bpf_ringbuf_submit(event, 0);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
