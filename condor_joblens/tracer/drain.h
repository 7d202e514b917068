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
	char *command;		/* as long as it is: most are a fraction of what they may be */
};

struct drain {
	struct process_event *events;
	size_t room;
	struct ring *ring;
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

static void forget_process(struct known_process *place)
{
	free(place->command);
	place->command = NULL;
	place->time_ns = 0;
}

static void remember_exec(struct drain *drain, const struct process_event *event)
{
	struct known_process *place = place_for(drain, event->tgid);

	forget_process(place);
	place->command = malloc(event->command_bytes);
	place->command_bytes = place->command ? event->command_bytes : 0;
	place->time_ns = event->time_ns;
	place->tgid = event->tgid;
	memcpy(place->program, event->program, PROGRAM_BYTES);
	if (place->command)
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
		forget_process(own);
}

static void drain_one(struct drain *drain, struct process_event *event, const void *record, size_t size)
{
	memcpy(event, record, offsetof(struct process_event, command));
	/* of the command only what was written: the rest is what an earlier event has left in the ring. Behind the command a
	 * whole record has padding */
	if (event->command_bytes > size - offsetof(struct process_event, command) || event->command_bytes > COMMAND_BYTES)
		event->command_bytes = 0;
	memcpy(event->command, (const char *)record + offsetof(struct process_event, command), event->command_bytes);
	if (event->kind == PROCESS_EXEC)
		remember_exec(drain, event);
	else if (event->kind == PROCESS_EXIT)
		recall_exec(drain, event);
	memset(event->command + event->command_bytes, 0, COMMAND_BYTES - event->command_bytes);
}

/* Takes what is in the ring, as far as there is room, into drain->events from the start; returns how many. */
static size_t drain_events(struct drain *drain)
{
	const void *record;
	size_t count = 0, size;

	while (count < drain->room && (record = oldest_record(drain->ring, &size))) {
		if (size >= offsetof(struct process_event, command))
			drain_one(drain, &drain->events[count++], record, size);
		pass_record(drain->ring, size);
	}
	return count;
}

/* NULL and errno where the ring can't be opened. `events` has room for `room` of them. */
static struct drain *open_drain(int map_fd, struct process_event *events, size_t room)
{
	struct drain *drain = calloc(1, sizeof(*drain));

	if (!drain)
		return NULL;
	drain->events = events;
	drain->room = room;
	drain->ring = map_ring(map_fd);
	if (!drain->ring) {
		free(drain);
		return NULL;
	}
	return drain;
}

static void close_drain(struct drain *drain)
{
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (int way = 0; way < WAYS; way++)
			free(drain->known[bucket][way].command);
	unmap_ring(drain->ring);
	free(drain);
}

#endif
