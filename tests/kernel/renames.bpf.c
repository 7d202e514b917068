// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* A sensor for tests (test_sensors.py): how often the tasks of a slot are renamed, which every exec does as well. */
#include "slots.bpf.h"

enum { MOST_RENAMES = 100 };	/* of a slot: further ones are lost */

struct slot_renames { u64 counted; u64 renames; u64 lost; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);	/* slot index */
	__type(value, struct slot_renames);
} jl_renames SEC(".maps");

SEC("tp_btf/task_rename")
int BPF_PROG(jl_rename, struct task_struct *task, const char *name)
{
	u32 slot = slot_of_task(task);
	struct slot_renames *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_renames, &slot);

	if (!count || !count->counted)
		return 0;
	if (count->renames < MOST_RENAMES)
		ADD(count->renames, 1);
	else
		ADD(count->lost, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
