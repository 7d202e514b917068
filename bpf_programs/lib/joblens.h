/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What the programs in the kernel and the agent share: the layouts of the maps and of the ring of events.
 * Plain declarations only: cffi reads this file as it stands, and numpy's types are made from it.
 */
#ifndef JOBLENS_H
#define JOBLENS_H

enum { PROGRAM_BYTES = 16, COMMAND_BYTES = 256 };

/* What has been counted for one slot. The totals hold what has *ended*: threads that exited and connections
 * that closed. What still lives is in `struct slot_living`; their sum is the job's total. */
struct slot_counters {
	__u64 cgroup_id;	/* 0: the slot index is free */
	__u64 io_key;		/* see below; 0: not watched at level io */
	__u64 born_ns;		/* CLOCK_MONOTONIC at which the cgroup was made or adopted */
	__u32 state;		/* enum slot_state */
	__u32 level;
	__u32 awaits_exec;	/* the next exec in the slot is where counting begins */
	__u32 main_tgid;	/* the job's first process, in the kernel's own pid namespace; 0: unknown */
	__u64 main_start_ns;	/* when it was born, where it was found living; 0: its exec was seen */
	__u64 maker_pid;	/* the process that made the cgroup, in the agent's pid namespace; 0: unknown */
	__s32 main_exit_code;	/* as wait(2) has it; of the last first process that ended */
	__u32 main_exits;	/* how many first processes have ended */

	/* who last told the first process to end, from outside the slot */
	__u64 ender_ns;		/* CLOCK_MONOTONIC; 0: nobody has */
	__u32 ender_signal;
	__u32 ender_pid;	/* in the agent's pid namespace; 0: unknown there */
	char ender[PROGRAM_BYTES];

	__u64 forked;
	__u64 executed;
	__u64 exited;
	__u64 failed;
	__u64 signalled;
	__u64 core_dumps;
	__u64 oom_kills;
	__u64 ended_peak_pages;	/* the greatest resident set of any process that ended */

	__u64 call_read_bytes;
	__u64 call_write_bytes;
	__u64 read_calls;
	__u64 write_calls;
	__u64 storage_read_bytes;
	__u64 storage_write_bytes;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 run_queue_ns;

	__u64 sent_bytes;
	__u64 received_bytes;
	__u64 connected;
	__u64 accepted;
	__u64 connect_failed;
	__u64 closed;
	__u64 retransmits;
	__u64 rtt_us;		/* sum of the last smoothed round-trip times of rtt_count connections */
	__u64 rtt_count;

	__u64 refused;		/* of connect_failed, by cause; all others were given up or failed otherwise */
	__u64 timed_out;
	__u64 unreachable;
	__u64 loopback_sent_bytes;	/* from level io on, of sent_bytes and received_bytes */
	__u64 loopback_received_bytes;
	__u64 udp_sent_bytes;	/* at level io */
	__u64 udp_received_bytes;
	__u64 udp_sends;
	__u64 udp_receives;
	__u64 dns_queries;
	__u64 dns_answers;
	__u32 by_endpoint;	/* it is or was at level io: connections are counted by endpoint as well */
	__u32 endpoints_made;	/* entries made in `endpoints` for it, */
	__u32 endpoints_dropped;	/* and taken from there again by the agent */
	__u32 reserved;
};

/* What lives in one slot now: the agent clears it, the iterators add to it. */
struct slot_living {
	__u64 processes;
	__u64 threads;
	__u64 runnable;
	__u64 uninterruptible;

	__u64 call_read_bytes;
	__u64 call_write_bytes;
	__u64 read_calls;
	__u64 write_calls;
	__u64 storage_read_bytes;
	__u64 storage_write_bytes;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 run_queue_ns;

	__u64 anon_pages;
	__u64 file_pages;
	__u64 swap_pages;
	__u64 peak_pages;	/* the greatest of any one process */

	__u64 sent_bytes;
	__u64 received_bytes;
	__u64 retransmits;
	__u64 rtt_us;
	__u64 rtt_count;
	__u64 loopback_sent_bytes;
	__u64 loopback_received_bytes;
	__u64 connections;
};

/* The other end of connections, as a key: v4 as v6 (::ffff:0:0/96), in network order. Connections that a slot
 * accepted are one endpoint a peer's address, with port 0: their peers' ports mean nothing. */
struct endpoint_key {
	__u64 cgroup_id;
	__u64 address[2];
	__u32 port;
	__u32 kind;		/* enum endpoint_kind */
};

enum endpoint_kind {
	ENDPOINT_COUNTED,	/* by the programs */
	ENDPOINT_BASE,		/* by the agent, to be added: what the run had before this cgroup or these programs */
};

/* The slot's share of its totals that went to one endpoint; what is in no entry is the slot's rest. */
struct endpoint {
	__u64 sent_bytes;	/* of connections that have closed */
	__u64 received_bytes;
	__u64 connections;
	__u64 retransmits;
	__u64 rtt_us;
	__u64 rtt_count;
	__u64 refused;		/* connections that did not come about, by cause */
	__u64 timed_out;
	__u64 unreachable;
	__u64 failed_otherwise;

	__u64 round;		/* the walk over all connections in which those below were open */
	__u64 open_sent_bytes;
	__u64 open_received_bytes;
	__u64 open_connections;
	__u64 open_retransmits;
	__u64 open_rtt_us;
	__u64 open_rtt_count;
};

/* Entries that one slot can have at a time: the agent drops the smallest ones in each round. */
enum { MAX_ENDPOINTS = 128 };

enum { LEVEL_IO = 2 };	/* as in levels.py */

enum slot_state { SLOT_FREE, SLOT_LIVE, SLOT_GONE };

enum { BASES = 8, EVENT_NAME_BYTES = 256 };

/* The node: what the agent tells the programs, and what they could not do. One element. */
struct node {
	__u64 base[BASES];	/* ids of the cgroups directly below which slots appear; 0: none */
	__u64 slot_depths;	/* bit n: slots can be at depth n of the cgroup tree, counted from its real root */
	__u64 pid_namespace_device;
	__u64 pid_namespace_inode;
	__u64 round;		/* number of the iterators' present round */
	__u64 connections_round;	/* number of the present walk over the connections */
	__u64 lost_slots;	/* births for which no slot index was free */
	__u64 lost_events;	/* events for which the ring had no room */
	__u64 lost_peaks;	/* peaks that could not be kept */
	/* process events for which their ring had no room: all that they tell is counted none the less */
	__u64 lost_execs;
	__u64 lost_exits;
	__u64 told_execs;	/* how many of them the agent has told of, */
	__u64 told_exits;
	__u64 told_signals;	/* and of signals that the program at them missed */
};

enum event_kind { EVENT_BORN = 1, EVENT_MAIN_EXITED, EVENT_EMPTY, EVENT_GONE };

struct event {
	__u64 time_ns;
	__u64 cgroup_id;
	__u32 kind;
	__u32 slot;		/* index, or NO_SLOT */
	__u32 pid;		/* born: who made it, in the agent's pid namespace */
	__s32 exit_code;	/* main exited: as wait(2) has it */
	char name[EVENT_NAME_BYTES];	/* born: the last part of the cgroup's path */
};

enum process_event_kind { PROCESS_EXEC = 1, PROCESS_EXIT };
enum process_event_flag { PROCESS_MAIN = 1, PROCESS_OOM_VICTIM = 2 };

/* What happened to a process of a slot, in a ring of its own. */
struct process_event {
	__u64 time_ns;
	__u64 cgroup_id;	/* the slot's */
	__u64 lived_ns;		/* exit: since the process was made */
	__u64 resident_pages;	/* exit of the OOM killer's victim: when it was chosen; else 0 */
	__u64 peak_pages;	/* exit: the greatest that it had */
	__u32 kind;
	__u32 slot;
	__u32 flags;
	__s32 exit_code;	/* as wait(2) has it */
	__u32 pid;		/* in the agent's pid namespace; 0: unknown there */
	__u32 parent_pid;
	__u32 tgid;		/* the same two in the kernel's own */
	__u32 parent_tgid;
	char program[PROGRAM_BYTES];
	/* exec: the arguments, each with its NUL, as far as they fit; of an exit the ring has none, and the drain
	 * puts those of the process's last exec there */
	__u32 command_bytes;
	char command[COMMAND_BYTES];
};

enum { NO_SLOT = 0xffffffff };

/* -- level io ------------------------------------------------------------------------------------------------
 * Only jobs at that level have wide counters: a row for each CPU, which is written on that CPU alone, so that
 * counting takes no atomic instruction. The row's key is one more than its number, and in the upper half a number
 * that is never used twice: what a thread remembers of a job that had the row before is told by it. */

enum { CALL_CLASSES = 11, FILE_CLASSES = 16, ERROR_CLASSES = 31 };	/* as in classes.py */
enum { CALL_RETURNS, CALL_ERRORS, CALL_BYTES, CALL_FIELDS = 4 };
enum {
	FILE_OPENS, FILE_FAILED_OPENS, FILE_READ_BYTES, FILE_WRITE_BYTES, FILE_READ_CALLS, FILE_WRITE_CALLS,
	FILE_BLOCKED_NS, FILE_FIELDS = 8
};
enum wait { WAIT_RUNNING, WAIT_RUN_QUEUE, WAIT_UNINTERRUPTIBLE, WAIT_SLEEP, WAITS };
enum uncounted {
	UNCOUNTED_32_BIT,	/* calls of 32-bit programs: in class Other, and in no file system's numbers */
	UNCOUNTED_AIO,		/* io_submit: what it starts is in no number */
	UNCOUNTED_MESSAGES,	/* sendmmsg, recvmmsg: calls, but no bytes */
	UNCOUNTED_PATHS,	/* failed opens whose path could not be read: file-system class Other */
	UNCOUNTED_WAITS,	/* switches at which there was no room to remember a thread */
	UNCOUNTED_URING,	/* what io_uring opened, sent and received */
	UNCOUNTED_KINDS = 9
};

struct io_counters {
	__u64 files[128];	/* [FILE_CLASSES][FILE_FIELDS] */
	__u64 calls[44];	/* [CALL_CLASSES][CALL_FIELDS] */
	__u64 errors[31];	/* [ERROR_CLASSES] */
	__u64 waits[4];		/* ns, [WAITS] */
	__u64 uncounted[9];	/* [UNCOUNTED_KINDS] */
};

/* What io_uring did for a job. */
struct io_uring_counters {
	__u64 files[128];	/* [FILE_CLASSES][FILE_FIELDS] */
	__u64 others;		/* operations that open files or use the network: in no number */
};

/* What runs on a CPU now, if it is watched at level io. */
struct io_running {
	__u64 key;
	__u64 task;		/* struct task_struct * */
	__u64 registers;	/* where its registers lie while it is in the kernel: by that a call knows that this is about it */
	__u64 since_ns;		/* when it came onto the CPU, by the scheduler's clock */
	__u64 waited_ns;	/* how long it had been away before that */
	__u64 queued_ns;	/* what its run_delay was when it left */
	__u32 kind;		/* as in io_waiting */
	__u32 index;		/* one more than that of its counters; 0: not watched */
	__u64 clock_offset;	/* what CLOCK_MONOTONIC is ahead of the scheduler's clock; 0: to be looked at again */
	__u64 registers_place;	/* how far above the beginning of its stack a thread's registers lie; 0: not known yet */
};

/* A watched thread that waits. */
struct io_waiting {
	__u64 key;
	__u64 since_ns;		/* by the scheduler's clock; 0: it runs */
	__u64 queued_ns;
	__u32 pid;		/* in the kernel's own namespace; 0: free */
	__u32 kind;		/* enum wait, and above 8 bits one more than the class of the file it waits for */
};

enum { SUPERBLOCKS = 64 };

/* What a CPU remembers of mounted file systems, by the last bits of their device numbers. */
struct io_superblocks {
	__u64 address[64];	/* 0: nothing */
	__u32 device[64];
	__u32 class[64];
};

struct io_node {
	__u64 keys;		/* how many have been given */
	__u64 generation;	/* of the slots' keys: what CPUs remember of cgroups is of one generation */
	__u64 waiting_mask;	/* entries of io_waiting less one: a power of two less one */
};

#endif
