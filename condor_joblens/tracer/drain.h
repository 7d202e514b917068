/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes the kernel's ring of process events, and remembers what each process last executed: an exit knows no more than
 * 15 characters of a program's name, and `python3` says nothing of a payload. A table of fixed size; where more
 * processes live than it has room for, the oldest of a bucket is forgotten, and its exit has no command.
 */
#ifndef JOBLENS_DRAIN_H
#define JOBLENS_DRAIN_H

enum { BUCKETS = 2048, WAYS = 8 };

struct known_process {
	__u64 time_ns;		/* 0: free */
	__u32 tgid;
	__u32 command_bytes;
	char program[PROGRAM_BYTES];
	char command[COMMAND_BYTES];
};

struct drain {
	struct process_event *events;
	size_t room;
	size_t count;
	struct ring_buffer *ring;
	struct known_process known[BUCKETS][WAYS];
};

static struct known_process *known_process(struct drain *drain, __u32 tgid)
{
	struct known_process *bucket = drain->known[tgid % BUCKETS];

	for (int way = 0; way < WAYS; way++)
		if (bucket[way].time_ns && bucket[way].tgid == tgid)
			return &bucket[way];
	return NULL;
}

/* Its own place, a free one, or that of the oldest. */
static struct known_process *place_for(struct drain *drain, __u32 tgid)
{
	struct known_process *bucket = drain->known[tgid % BUCKETS], *place = known_process(drain, tgid);

	if (place)
		return place;
	place = bucket;
	for (int way = 1; way < WAYS; way++)
		if (bucket[way].time_ns < place->time_ns)
			place = &bucket[way];
	return place;
}

static void remember_exec(struct drain *drain, const struct process_event *event)
{
	struct known_process *place = place_for(drain, event->tgid);

	place->time_ns = event->time_ns;
	place->tgid = event->tgid;
	place->command_bytes = event->command_bytes;
	memcpy(place->program, event->program, PROGRAM_BYTES);
	memcpy(place->command, event->command, place->command_bytes);
}

/* A process that has executed nothing runs its parent's program, unless it has changed its name. */
static void recall_exec(struct drain *drain, struct process_event *event)
{
	struct known_process *own = known_process(drain, event->tgid), *known = own;

	if (!known)
		known = known_process(drain, event->parent_tgid);
	if (known && (known == own || !memcmp(known->program, event->program, PROGRAM_BYTES))) {
		event->command_bytes = known->command_bytes;
		memcpy(event->command, known->command, known->command_bytes);
	}
	if (own)
		own->time_ns = 0;
}

/* Where there is no more room the event stays in the ring: libbpf stops at a negative return. */
static int drain_one(void *context, void *data, size_t size)
{
	struct drain *drain = context;
	struct process_event *event;

	if (drain->count == drain->room)
		return -ENOSPC;
	if (size < offsetof(struct process_event, command))
		return 0;
	event = &drain->events[drain->count++];
	memcpy(event, data, offsetof(struct process_event, command));
	/* of the command only what was written: the rest is what an earlier event has left in the ring */
	if (event->command_bytes > size - offsetof(struct process_event, command))
		event->command_bytes = 0;
	memcpy(event->command, (char *)data + offsetof(struct process_event, command), event->command_bytes);
	if (event->kind == PROCESS_EXEC)
		remember_exec(drain, event);
	else if (event->kind == PROCESS_EXIT)
		recall_exec(drain, event);
	memset(event->command + event->command_bytes, 0, COMMAND_BYTES - event->command_bytes);
	return drain->count == drain->room ? -ENOSPC : 0;
}

/* Takes what is in the ring into drain->events from the start; returns how many, or -errno. */
static int drain_events(struct drain *drain)
{
	int result;

	drain->count = 0;
	result = ring_buffer__consume(drain->ring);
	return result < 0 && result != -ENOSPC ? result : (int)drain->count;
}

/* NULL and errno where the ring can't be opened. `events` has room for `room` of them. */
static struct drain *open_drain(int map_fd, struct process_event *events, size_t room)
{
	struct drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return NULL;
	drain->events = events;
	drain->room = room;
	drain->ring = ring_buffer__new(map_fd, drain_one, drain, NULL);
	if (!drain->ring) {
		int error = errno;

		free(drain);
		errno = error;
		return NULL;
	}
	return drain;
}

static int drain_fd(const struct drain *drain) { return ring_buffer__epoll_fd(drain->ring); }

static void close_drain(struct drain *drain)
{
	ring_buffer__free(drain->ring);
	free(drain);
}

#endif
