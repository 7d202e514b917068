/* Which system calls the job makes, and how many of each fail.
 *   joblens ask 12.0 syscalls.c --for 10s
 * Numbers of calls: ausyscall, or /usr/include/x86_64-linux-gnu/asm/unistd_64.h
 */
BPF_HASH(calls, u32);
BPF_HASH(failed, u32);

TRACEPOINT_PROBE(raw_syscalls, sys_exit)
{
	u32 number = args->id;

	if (!JOB())
		return 0;
	calls.increment(number);
	if (args->ret < 0)
		failed.increment(number);
	return 0;
}
