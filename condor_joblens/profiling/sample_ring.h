/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes samples out of the kernel's ring, which has one consumer: a process without any right, that was handed the
 * ring's descriptor. Samples are copied as they are, each behind its size: whoever counts them compares bytes.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/bpf.h>

struct sample_ring {
	unsigned long *consumed;	/* up to where: ours to write, in a page of its own */
	const unsigned long *produced;	/* and the kernel's */
	const char *data;	/* mapped twice, one after the other, so that no sample is cut in two */
	size_t bytes, page;
};

static void unmap_samples(struct sample_ring *ring)
{
	munmap(ring->consumed, ring->page);
	munmap((void *)ring->produced, ring->page + 2 * ring->bytes);
	free(ring);
}

/* NULL and errno where it can't be mapped. */
static struct sample_ring *map_samples(int fd, size_t bytes)
{
	struct sample_ring *ring = calloc(1, sizeof(*ring));
	int error;

	if (!ring)
		return NULL;
	ring->bytes = bytes;
	ring->page = sysconf(_SC_PAGESIZE);
	ring->consumed = mmap(NULL, ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ring->produced = mmap(NULL, ring->page + 2 * bytes, PROT_READ, MAP_SHARED, fd, ring->page);
	if (ring->consumed == MAP_FAILED || ring->produced == MAP_FAILED) {
		error = errno;
		unmap_samples(ring);
		errno = error;
		return NULL;
	}
	ring->data = (const char *)ring->produced + ring->page;
	return ring;
}

/* Copies whole samples, as far as there is room: 8 bytes with the size of each, then the sample, in units of 8 bytes.
 * How many bytes were filled; 0: there is none. */
static size_t take_samples(struct sample_ring *ring, char *to, size_t room)
{
	unsigned long consumed = *ring->consumed;
	size_t filled = 0;

	while (consumed != __atomic_load_n(ring->produced, __ATOMIC_ACQUIRE)) {
		const char *record = ring->data + (consumed & (ring->bytes - 1));
		uint32_t head = __atomic_load_n((const uint32_t *)record, __ATOMIC_ACQUIRE);
		size_t size = head & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT), aligned = (size + 7) & ~(size_t)7;

		if (head & BPF_RINGBUF_BUSY_BIT || aligned > ring->bytes)
			break;
		if (!(head & BPF_RINGBUF_DISCARD_BIT)) {
			uint64_t told = size;

			if (filled + 8 + aligned > room)
				break;
			memcpy(to + filled, &told, 8);
			memcpy(to + filled + 8, record + BPF_RINGBUF_HDR_SZ, aligned);
			filled += 8 + aligned;
		}
		consumed += aligned + BPF_RINGBUF_HDR_SZ;
		__atomic_store_n(ring->consumed, consumed, __ATOMIC_RELEASE);
	}
	return filled;
}
