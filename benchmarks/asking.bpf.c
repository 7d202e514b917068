// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* At the end of each open, what the flight recorder can't do without: who it is, when, and the path. It keeps nothing. */
#define REGISTER(regs, member) ((regs)->member)
#include "../bpf_programs/lib/compat.bpf.h"
#include "../bpf_programs/lib/call_arguments.bpf.h"
#include "../bpf_programs/lib/mapped_array.bpf.h"
#include "../bpf_programs/recorder/joblens_recorder.h"
#include "../bpf_programs/io/syscalls.h"

const volatile u8 calls[CALLS] = { CALLS_OF_ARCHITECTURE };

MAPPED_ARRAY(asked, struct recorded);

SEC("tp_btf/sys_exit")
int BPF_PROG(asking_exit, struct pt_regs *regs, long result)
{
	u64 call = CALL_NUMBER(regs);
	u32 zero = 0;
	struct task_struct *task;
	struct recorded *record;

	if (call >= CALLS || (calls[call] & 0xf) != OPENS_AT)
		return 0;
	task = bpf_get_current_task_btf();
	record = bpf_map_lookup_elem(&asked, &zero);
	if (!record)
		return 0;
	record->thread = task->pid;
	record->time_ns = bpf_ktime_get_ns();
	bpf_probe_read_user_str(record->text, RECORDED_TEXT_BYTES, (void *)ARGUMENT_1(regs));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
