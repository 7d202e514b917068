/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes records out of one of the kernel's rings, which has one consumer.
 *
 * libbpf maps a ring's data twice, one after the other, so that no record is cut in two where the ring begins again, and
 * all pages of both count as resident: five megabytes for nothing. A page is more than the longest record of ours.
 */
#ifndef JOBLENS_RING_H
#define JOBLENS_RING_H

struct ring {
	unsigned long *consumed;		/* up to where: ours to write, in a page of its own */
	const unsigned long *produced;		/* and the kernel's */
	const char *data;
	size_t bytes;
	size_t again;	/* of them are mapped a second time, behind */
	size_t page;
};

enum { RECORD_HEAD = BPF_RINGBUF_HDR_SZ };

_Static_assert(sizeof(struct event) + RECORD_HEAD <= 4096 && sizeof(struct process_event) + RECORD_HEAD <= 4096,
	       "a record can reach beyond the page that is mapped again");

static void unmap_ring(struct ring *ring)
{
	munmap(ring->consumed, ring->page);
	munmap((void *)ring->produced, ring->page + ring->bytes + ring->again);
	free(ring);
}

/* For records of up to so many pages. NULL and errno where the map can't be mapped. */
static struct ring *map_ring_for(int map_fd, size_t pages)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	struct bpf_map_info info = {};
	__u32 size = sizeof(info);
	int error;

	if (!ring || bpf_obj_get_info_by_fd(map_fd, &info, &size)) {
		free(ring);
		return NULL;
	}
	ring->bytes = info.max_entries;
	ring->page = sysconf(_SC_PAGESIZE);
	ring->again = pages * ring->page;
	ring->consumed = mmap(NULL, ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	ring->produced = mmap(NULL, ring->page + ring->bytes + ring->again, PROT_READ, MAP_SHARED, map_fd, ring->page);
	if (ring->consumed == MAP_FAILED || ring->produced == MAP_FAILED) {
		error = errno;
		unmap_ring(ring);
		errno = error;
		return NULL;
	}
	ring->data = (const char *)ring->produced + ring->page;
	return ring;
}

static struct ring *map_ring(int map_fd) { return map_ring_for(map_fd, 1); }

/* The oldest record, of this size, is no longer needed. */
static void pass_record(struct ring *ring, size_t size)
{
	__atomic_store_n(ring->consumed, *ring->consumed + ((RECORD_HEAD + size + 7) & ~7UL), __ATOMIC_RELEASE);
}

/* The oldest record, which stays there until `pass_record`; NULL where there is none, or it is still being written. */
static const void *oldest_record(struct ring *ring, size_t *size)
{
	while (*ring->consumed != __atomic_load_n(ring->produced, __ATOMIC_ACQUIRE)) {
		const char *record = ring->data + (*ring->consumed & (ring->bytes - 1));
		__u32 head = __atomic_load_n((const __u32 *)record, __ATOMIC_ACQUIRE);

		if (head & BPF_RINGBUF_BUSY_BIT)
			return NULL;
		*size = head & ~BPF_RINGBUF_DISCARD_BIT;
		if (!(head & BPF_RINGBUF_DISCARD_BIT))
			return record + RECORD_HEAD;
		pass_record(ring, *size);
	}
	return NULL;
}

/* Nobody needs what is in the ring, which was there to wake its reader. */
static void pass_all(struct ring *ring)
{
	size_t size;

	while (oldest_record(ring, &size))
		pass_record(ring, size);
}

/* Takes the events that are in the ring, as far as there is room, into `events`; returns how many. */
static size_t take_events(struct ring *ring, struct event *events, size_t room)
{
	const void *record;
	size_t count = 0, size;

	while (count < room && (record = oldest_record(ring, &size))) {
		if (size >= sizeof(struct event))
			memcpy(&events[count++], record, sizeof(struct event));
		pass_record(ring, size);
	}
	return count;
}

#endif
