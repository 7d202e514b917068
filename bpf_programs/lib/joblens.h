/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
 *
 * What the programs in the kernel and the agent share: the layouts of the maps and of the rings of events. What one
 * level adds is in the folder of its programs, in a header joblens_LEVEL.h.
 * Plain declarations only: cffi reads these files as they stand, and numpy's types are made from them.
 */
#ifndef JOBLENS_H
#define JOBLENS_H

enum { PROGRAM_BYTES = 16, COMMAND_BYTES = 256 };

/* What threads have used: of all that have exited, or of all that live. */
struct thread_sums {
	__u64 call_read_bytes;
	__u64 call_write_bytes;
	__u64 read_calls;
	__u64 write_calls;
	__u64 storage_read_bytes;
	__u64 storage_write_bytes;
	__u64 minor_faults;
	__u64 major_faults;
	__u64 run_queue_ns;
};

/* The counters of a slot that begin anew with its job. They are cleared as one (process.bpf.c): what is added here begins
 * anew as well. */
struct job_counters {
	__u64 forked;
	__u64 executed;
	__u64 exited;
	__u64 failed;
	__u64 signalled;
	__u64 core_dumps;
	__u64 oom_kills;
	struct thread_sums threads;
};

/* What reached file servers: requests and answers on the file systems' own paths (lib/servers.bpf.h), not calls, of which
 * a cache answers most. By class, in the order of SERVER_CLASSES in model/classes.py. */
enum { SERVER_CVMFS, SERVER_EOS, SERVER_XROOTDFS, SERVER_FUSE, SERVER_NFS, SERVER_CEPH, SERVER_CLASSES };
enum { SERVER_REQUESTS, SERVER_SENT_BYTES, SERVER_RECEIVED_BYTES, SERVER_NS, SERVER_ERRORS, SERVER_NUMBERS };

/* Ports that are kept of one slot; of further ones, a connection's direction can be taken for the other. */
enum { MAX_SERVICES = 128 };

/* What has been counted for one slot. The totals hold what has *ended*: threads that exited and connections
 * that closed. `struct slot_living` has what lives; the sum of both is the job's total. */
struct slot_counters {
	__u64 cgroup_id;	/* see CGROUP_USES_SHIFT; 0: the slot index is free */
	__u64 io_key;		/* see below; 0: not watched at level io */
	__u64 born_ns;		/* CLOCK_MONOTONIC at which the cgroup was made or adopted */
	__u32 state;		/* enum slot_state */
	__u32 level;
	__u32 awaits_exec;	/* enum awaited_exec: where counting begins */
	__u32 main_tgid;	/* the job's first process, in the kernel's own pid namespace; 0: unknown */
	__u64 main_start_ns;	/* when it was born, where it was found living; 0: its exec was seen */
	__u64 maker_pid;	/* the process that made the cgroup, in the agent's pid namespace; 0: unknown */
	__s32 main_exit_code;	/* as wait(2) has it; of the last first process that ended */
	__u32 main_exits;	/* how many first processes have ended */

	/* HTCondor's own first process of a job that has process ids of its own (USE_PID_NAMESPACES): the job is its child */
	__u32 init_tgid;	/* in the kernel's own pid namespace; 0: there is none */
	__u32 init_apart;	/* 1: it is not counted with the job; see process.bpf.c */

	/* of a job that has come into the cgroup of an earlier one, see CGROUP_USES_SHIFT */
	__u64 since_ns;		/* CLOCK_MONOTONIC at which it came: older processes are not the job's; 0: there was none */
	__u32 entered_tgid;	/* the process with which it came, which is older */
	__u32 entered_shared;	/* 1: processes of the earlier job were still there */
	__u32 is_refilled;	/* 1: the slot was empty after its first process had ended, and then no more */

	/* who last told the first process to end, from outside the slot */
	__u64 ender_ns;		/* CLOCK_MONOTONIC; 0: nobody has */
	__u32 ender_signal;
	__u32 ender_pid;	/* in the agent's pid namespace; 0: unknown there */
	char ender[PROGRAM_BYTES];

	struct job_counters job;
	__u64 ended_peak_pages;	/* the greatest resident set of any process that ended */

	__u64 events_paid_until;	/* CLOCK_MONOTONIC: each process event of the slot moves it on; see process.bpf.c */
	__u64 events_lost;	/* process events beyond the slot's share, */
	__u64 events_declared;	/* and how many of them the agent has declared */

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
	__u32 endpoints_made;	/* entries made in jl_endpoints for it, */
	__u32 endpoints_dropped;	/* and taken from there again by the agent */
	__u32 kept_early;	/* enum kept_early: who is counted with the job */
	__u32 services_seen;	/* how many ports have gone into `services`, again and again from its start */
	__u32 servers_made;	/* as endpoints_made and endpoints_dropped, of jl_servers */
	__u32 servers_dropped;
	__u64 servers[30];	/* [SERVER_CLASSES][SERVER_NUMBERS] of requests that were answered */
	__u64 mapped_bytes[6];	/* [SERVER_CLASSES] of files, that no reading call had asked for */

	/* the last ports at which the slot listened or accepted, from level io on: at a connection's end nothing in its
	 * socket tells any more which side began */
	__u16 services[MAX_SERVICES];

	/* the files of the first programs since counting began, see WRAPPERS_PROGRAMS */
	__u64 program_inodes[2];
	__u32 program_devices[2];	/* as the kernel writes them: major << 20 | minor */
};

/* A cgroup is known by the inode of its folder, and where HTCondor could not remove it and the next job came into it, by
 * the number of jobs before, above the inode: inodes have fewer bits. So whatever is kept by this id is one job's. */
enum { CGROUP_USES_SHIFT = 56, CGROUP_USES = 128 };

enum awaited_exec {
	AWAITS_NOTHING,
	AWAITS_FIRST,	/* the first exec in the slot: what ran before was the starter's */
	AWAITS_JOB,	/* the wrapper has called: the exec by which it becomes the job, if nothing but it has run */
};

enum kept_early {
	KEPT_NOTHING,
	KEPT_WRAPPER,	/* more than the wrapper ran before the job */
	KEPT_INIT,	/* HTCondor's own first process did more than it does by itself */
};

/* What the wrapper does until it becomes the job: a shell starts the helper. All of this is no more than a hundredth of
 * these bounds, but for the job's environment, which the helper reads, and what a cold machine reads from its disk. Only
 * so much is ever taken off a job's numbers: what is more was somebody else's work, as of a library in LD_PRELOAD. */
enum {
	WRAPPERS_PROGRAMS = 2, WRAPPERS_FORKS = 1, WRAPPERS_EXITS = 1,
	WRAPPERS_READ_BYTES = 1048576, WRAPPERS_WRITTEN_BYTES = 4096, WRAPPERS_CALLS = 4096,
	WRAPPERS_STORAGE_BYTES = 16777216, WRAPPERS_FAULTS = 4096,
	WRAPPERS_CPU_MS = 250,
};

/* What lives in one slot now: the agent clears it, the iterators add to it. */
struct slot_living {
	__u64 processes;
	__u64 threads;
	__u64 runnable;
	__u64 uninterruptible;

	struct thread_sums threads_used;

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
	__u64 unsent_bytes;	/* that programs have written and the kernel has not sent yet */
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

/* Connections of a process that did not come about, since one did the last time: why it ended may be one of them. */
enum { FAILED_CONNECTIONS = 4, FAILING_CONNECTORS = 8 };

struct failed_connection {
	__u64 time_ns;		/* CLOCK_MONOTONIC; 0: none, or one came about after it */
	__u64 address[2];	/* as in endpoint_key */
	__u32 port;
	__u32 error;		/* errno; ETIMEDOUT also if the process has given up waiting */
};

/* One of FAILING_CONNECTORS of a slot. */
struct failed_connections {
	__u64 tgid;
	struct failed_connection last[4];	/* [FAILED_CONNECTIONS], the newest first */
};

/* Calls of processes that failed, at level basic: those that can be why a process ends without a word of its own. */
enum { FAILURE_PATH_BYTES = 256, FAILED_CALLS = 8, COMMON_FAILED_CALLS = 6, TOLD_BYTES = 256 };
enum failed_subject {
	FAILED_PATH = 1,	/* `path`: as the process gave it, relative to wherever it was */
	FAILED_FILE,		/* `path`: of an open file, innermost name first, each with its NUL; "/": a mount begins */
	FAILED_DEVICE,		/* the same of a character device */
	FAILED_MEMORY,		/* `asked` bytes more, `held` pages, `limit` */
	FAILED_DESCRIPTORS,	/* `limit` */
	FAILED_PROCESSES,	/* `limit` */
	FAILED_ADDRESS,		/* `path`: struct sockaddr_in or sockaddr_in6 */
	FAILED_PROGRAM,		/* `path`: as FAILED_PATH, of what was to be executed */
};

/* A call that failed, and what it was about. */
struct failed_call {
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u64 asked;
	__u64 held;
	__u64 limit;		/* of struct rlimit; all bits: none */
	__u32 error;
	__u32 subject;		/* enum failed_subject */
	__u32 bytes;		/* of `path` */
	__u32 unused;
	char path[FAILURE_PATH_BYTES];
};

/* One of FAILING_CONNECTORS of a slot. */
struct failed_calls {
	__u32 tgid;
	__u32 common_count;	/* as in struct io_failures */
	__u32 rare_count;
	__u32 told_bytes;
	__u32 names[FAILED_CALLS];	/* of the last component of each path, a hash */
	struct failed_call last[FAILED_CALLS];	/* two rings, as in struct io_failures */
	char told[TOLD_BYTES];	/* its arguments, each with its NUL */
};

/* Entries that one slot can have at a time: the agent drops the smallest ones in each round. */
enum { MAX_ENDPOINTS = 128 };

/* A file server, or a mount of FUSE, whose daemon is all that the kernel knows of its server. */
struct server_key {
	__u64 cgroup_id;	/* the slot's; 0: requests of nobody who is counted */
	__u64 address[2];	/* NFS: as in endpoint_key; FUSE: 0, and device and began_ms of the mount */
	__u32 port;
	__u32 class;		/* enum above */
};

/* A slot's share of its `servers` that went there; what is in no entry is the slot's rest. */
struct server {
	__u64 numbers[5];	/* [SERVER_NUMBERS] */
};

/* Entries that one slot can have at a time, and that there can be of requests of nobody. */
enum { MAX_SERVERS = 64, MAX_SERVERS_UNATTRIBUTED = 512 };

/* A mounted file system of FUSE, by its device number. */
enum { FUSE_TYPE_BYTES = 40 };
struct fuse_mounted {
	__u64 connection;	/* struct fuse_conn * */
	__u32 began_ms;	/* CLOCK_MONOTONIC, cut to 32 bits, at which its daemon began; 0: before these programs */
	__u32 class;
	char type[40];		/* as mountinfo writes it: fuse.cvmfs2 */
};

enum { LEVEL_IO = 2 };	/* as in levels.py */

enum slot_state {
	SLOT_FREE, SLOT_LIVE, SLOT_GONE,
	SLOT_LEFT,	/* the next job is in its cgroup, and counted elsewhere */
};

enum { BASES = 8, EVENT_NAME_BYTES = 256 };

/* What a call has waited that ends now. */
struct ended_wait {
	__u64 ns;		/* in all; not what it spent in the run queue */
	__u32 file_class;	/* one more than the class of the file that it waited for last, or FILE_LOCK; 0: it was about no file */
	__u32 unused;
};

/* The node: what the agent tells the programs, and what they could not do. One element. */
struct node {
	__u64 base[BASES];	/* ids of the cgroups directly below which slots appear; 0: none */
	__u64 slot_depths;	/* bit n: slots can be at depth n of the cgroup tree, counted from its real root */
	__u64 pid_namespace_device;
	__u64 pid_namespace_inode;
	__u64 init_inode;	/* the file of condor_pid_ns_init; 0: there is none */
	__u64 init_device;	/* as the kernel writes it: major << 20 | minor */
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
	__u64 event_interval_ns;	/* from one process event of a slot to the next, on average; 0: no bound */
	__u64 event_burst_ns;	/* by how much a slot may be ahead of that */
	__u64 unattributed[30];	/* as `servers` of a slot, of nobody who is counted */
	__u32 unattributed_made;	/* entries of jl_servers for those */
	__u32 unattributed_dropped;
	__u64 wake_at_bytes;	/* of process events, the agent is woken if so many bytes wait; 0: as soon as one does */
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
	__u64 cpu_limit_seconds;	/* exit by the kernel's signal for that: the CPU time that it was allowed; else 0 */
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

#endif
