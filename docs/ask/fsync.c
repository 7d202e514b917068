/* How long the job's fsync takes, as a histogram of microseconds; each one of more than 0.1 s at once. */
struct slow {
	u32 pid;
	u64 microseconds;
	char program[16];
};

BPF_HASH(began, u64);
BPF_HISTOGRAM(microseconds);
BPF_PERF_OUTPUT(slow_ones);

TRACEPOINT_PROBE(syscalls, sys_enter_fsync)
{
	u64 task = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();

	if (JOB())
		began.update(&task, &now);
	return 0;
}

TRACEPOINT_PROBE(syscalls, sys_exit_fsync)
{
	u64 task = bpf_get_current_pid_tgid(), *since = began.lookup(&task);
	struct slow found = {};

	if (!since)
		return 0;
	found.microseconds = (bpf_ktime_get_ns() - *since) / 1000;
	began.delete(&task);
	microseconds.increment(bpf_log2l(found.microseconds));
	if (found.microseconds > 100000) {
		found.pid = task >> 32;
		bpf_get_current_comm(found.program, sizeof(found.program));
		slow_ones.perf_submit(args, &found, sizeof(found));
	}
	return 0;
}
