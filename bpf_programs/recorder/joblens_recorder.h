/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * The flight recorder's records: plain declarations, as in lib/joblens.h.
 */
#ifndef JOBLENS_RECORDER_H
#define JOBLENS_RECORDER_H

/* Both rings of a job lie in one row of jl_records, the rare one first. */
enum recorder_ring { RING_RARE, RING_FREQUENT, RECORDER_RINGS };

enum { RECORDED_TEXT_BYTES = 192, RECORDED_TYPE_BYTES = 80 };

enum recorded_kind {
	RECORDED_FAILED = 1,	/* a call that failed: `value` is the error, `other` the call's number */
	RECORDED_EXEC,		/* a program began: the text has its arguments, each with its NUL */
	RECORDED_EXIT,		/* a process ended: `value` as wait(2) has it */
	RECORDED_SIGNAL,	/* sent to a process: `value` is the signal, `other` the sender's pid, in the agent's pid
				 * namespace, the text its name; of the kernel's own there is neither */
	RECORDED_OPEN,		/* `value` is the descriptor */
	RECORDED_FORK,		/* `value` is the child's pid as its parent has it */
	RECORDED_CONNECT,	/* a connection came about, or began to */
	RECORDED_REFUSED,	/* one that had begun did not come about, as the process learns: `value` is the error */
	/* Of jobs that are traced, from the programs at its probes: */
	RECORDED_CALL,		/* a traced function was entered: the text is its name */
	RECORDED_RETURN,	/* it returned, or left by a jump */
	RECORDED_COMMAND,	/* a bash began one: `value` is its line, `other` the status of the one before */
	RECORDED_THROW,		/* C++ throws: the text is RECORDED_TYPE_BYTES of its mangled type, then of what() */
};

/* What the text of a record is. */
enum recorded_subject {
	RECORDED_NOTHING,
	RECORDED_PATH,		/* as the process gave it */
	RECORDED_FILE,		/* the last component of an open file's path */
	RECORDED_ARGUMENTS,
	RECORDED_ADDRESS,	/* struct sockaddr_in or sockaddr_in6, as far as the process gave it */
	RECORDED_NAME,
	RECORDED_UNREAD,	/* there was one, in memory that was not resident: nothing makes the thread wait for it */
	RECORDED_TYPE,		/* an exception's type, and its text */
};

/* One event. It is whole where both numbers are the same: who writes it takes the place with the first, and leaves it
 * with the second. All but the text lies in one cache line: mostly no cache has the place that is next. */
struct recorded {
	__u64 begun;		/* number of the event in its ring, counted from 1 */
	__u64 ended;
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u32 key;		/* of the job: the last bits of that of struct recorded_job */
	__u32 pid;		/* of the process, in the agent's pid namespace; 0: unknown there */
	__u32 thread;		/* in the kernel's own */
	__s32 value;
	__s32 other;
	__u8 kind;		/* enum recorded_kind */
	__u8 subject;		/* enum recorded_subject */
	__u16 text_bytes;
	char program[16];
	char text[RECORDED_TEXT_BYTES];
};

/* Whose events are recorded, by slot. */
struct recorded_job {
	__u64 key;		/* never used twice; 0: nobody's */
	__u32 row;
	__u32 uid;		/* of the job's owner */
	__u64 not_ours;		/* events of tasks that are not the owner's alone: nothing is kept of them */
	__u64 lost;		/* events whose place somebody was writing */
	__u64 since_ns;		/* CLOCK_MONOTONIC */
	__u64 first_rare;	/* of each ring's events so many were there before */
	__u64 first_frequent;
};

/* How many events have gone into the rings of a row, of all jobs that had it. A cache line each: jobs that run beside
 * each other would wait for it. */
struct recorder_row { __u64 heads[2]; __u64 unused[6]; };

/* The one element of what all programs of the recorder share. */
struct recorder_node {
	__u64 generation;	/* what CPUs remember of cgroups is old where this is another */
	__u64 keys;		/* the last one that was given */
};

#endif
