/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * The layouts of the maps of level io, which the programs in the kernel and the agent share: plain declarations, as in
 * lib/joblens.h.
 */
#ifndef JOBLENS_IO_H
#define JOBLENS_IO_H

/* Only jobs at that level have wide counters: a row for each CPU, which is written on that CPU alone, so that
 * counting takes no atomic instruction. The row's key is one more than its number, and in the upper half a number
 * that is never used twice: what a thread remembers of a job that had the row before is told by it. */

enum { CALL_CLASSES = 11, FILE_CLASSES = 16, ERROR_CLASSES = 31 };	/* as in classes.py */
enum { CALL_RETURNS, CALL_ERRORS, CALL_BYTES, CALL_FIELDS = 4 };
enum {
	FILE_OPENS, FILE_FAILED_OPENS, FILE_READ_BYTES, FILE_WRITE_BYTES, FILE_READ_CALLS, FILE_WRITE_CALLS,
	FILE_BLOCKED_NS, FILE_FIELDS = 8
};
/* In the place of a file's class: a lock on a file is waited for, on whatever file system that is. */
enum { FILE_LOCK = FILE_CLASSES };
enum wait { WAIT_RUNNING, WAIT_RUN_QUEUE, WAIT_UNINTERRUPTIBLE, WAIT_SLEEP, WAITS };
enum uncounted {
	UNCOUNTED_32_BIT,	/* calls of 32-bit programs: in class Other, and in no file system's numbers */
	UNCOUNTED_AIO,		/* io_submit: what it starts is in no number */
	UNCOUNTED_MESSAGES,	/* sendmmsg, recvmmsg: calls, but no bytes */
	UNCOUNTED_PATHS,	/* failed opens whose path could not be read: file-system class Other */
	UNCOUNTED_WAITS,	/* switches at which there was no room to remember a thread */
	UNCOUNTED_URING,	/* what io_uring opened, sent, received and read by multishot requests */
	UNCOUNTED_UNTOLD,	/* requests of io_uring of whose success the kernel tells nobody */
	UNCOUNTED_SLEEPERS,	/* threads that slept before the job came to level io: by state, not by file system */
	UNCOUNTED_MAPPED,	/* files that were mapped where nothing tells what is read of them */
	UNCOUNTED_KINDS = 9
};

struct io_counters {
	__u64 files[128];	/* [FILE_CLASSES][FILE_FIELDS] */
	__u64 calls[44];	/* [CALL_CLASSES][CALL_FIELDS] */
	__u64 errors[31];	/* [ERROR_CLASSES] */
	__u64 waits[4];		/* ns, [WAITS] */
	__u64 uncounted[9];	/* [UNCOUNTED_KINDS] */
	__u64 file_lock_ns;	/* waited for locks on files: part of the waits, and of no file system's */
};

/* How long calls of a job at level profile have waited, by class and length; on each CPU. The first length is below
 * 3.90625 us, each further one twice as long as all before, the last one without an end: 1 ms is where one begins. */
enum { WAIT_LENGTHS = 22, CLASSES_OF_WAITS = 16, SHORTEST_WAIT_NUMERATOR = 125000, SHORTEST_WAIT_DENOMINATOR = 32 };
struct call_waits {
	__u64 waits[512];	/* [CLASSES_OF_WAITS][32] */
	__u64 short_ns[16];	/* [CLASSES_OF_WAITS]: waited in those below a millisecond, */
	__u64 long_ns[16];	/* and in all others */
};

/* What io_uring did for a job. */
struct io_uring_counters {
	__u64 files[128];	/* [FILE_CLASSES][FILE_FIELDS] */
	__u64 others;		/* requests that open files, use the network or are multishot: in no number */
	__u64 untold;		/* reads and writes whose success is not told, completions that the ring had no room for */
};

enum { CLOCK_LOOKS = 8 };

/* What runs on a CPU now, if it is watched at level io. */
struct io_running {
	__u64 key;
	__u64 task;		/* struct task_struct * */
	__u64 registers;	/* where its registers lie while it is in the kernel: by that a call knows that this is about it */
	__u64 since_ns;		/* when it came onto the CPU, by the scheduler's clock */
	__u64 waited_ns;	/* how long it had been away before that */
	__u64 queued_ns;	/* what its run_delay was when it left */
	__u64 call_ns;		/* as in io_waiting, without `waited_ns` */
	__u32 kind;		/* as in io_waiting */
	__u32 index;		/* one more than that of its counters; 0: not watched */
	__u64 clock_offset;	/* what CLOCK_MONOTONIC is ahead of the scheduler's clock; 0: not known yet */
	__u64 clock_looks;	/* how often that was looked at; 0: to be looked at again */
	__u64 registers_place;	/* how far above the beginning of its stack a thread's registers lie; 0: not known yet */
};

/* A watched thread that waits. */
struct io_waiting {
	__u64 key;
	__u64 since_ns;		/* by the scheduler's clock; 0: it runs */
	__u64 queued_ns;
	__u64 call_ns;		/* one more than how long the call that it is in had waited before; 0: it waits in no call */
	__u32 pid;		/* in the kernel's own namespace; 0: free */
	__u32 kind;		/* enum wait, and above 8 bits one more than the class of the file it waits for, or FILE_LOCK */
};

enum { SUPERBLOCKS = 64 };

/* What a CPU remembers of mounted file systems, by the last bits of their device numbers. */
struct io_superblocks {
	__u64 address[64];	/* 0: nothing */
	__u32 device[64];
	__u32 class[64];
};

/* What has failed for a process of a job, and what it said then. */
enum { FAILING = 16, FAILURES = 16, COMMON_FAILURES = 12, SAID_BYTES = 768 };
struct io_failures {
	__u32 common_count;	/* how many there have been: the next one's place in the ring */
	__u32 rare_count;
	__u32 writes_left;	/* to descriptor 2, that are looked at */
	__u32 said_bytes;
	/* two rings: of errors that sound programs meet all the time, and of all others */
	struct failed_call last[FAILURES];
	char said[SAID_BYTES];	/* the last of what it wrote to descriptor 2 after that */
};

/* Whose io_failures a job has. */
struct io_failing {
	__u32 tgid[FAILING];	/* 0: free */
	__u64 last_ns[FAILING];	/* when something failed last, CLOCK_MONOTONIC; 0: free */
};

struct io_node {
	__u64 keys;		/* how many have been given */
	__u64 generation;	/* of the slots' keys: what CPUs remember of cgroups is of one generation */
	__u64 unseen_mapped;	/* file systems, a bit a class: what is read of their mapped files is in no number */
	__u64 waiting_mask;	/* entries of io_waiting less one: a power of two less one */
};

#endif
