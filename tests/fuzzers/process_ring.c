/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking process events out of the kernel's ring (tracer/ring.h, tracer/drain.h). Records have the sizes that the
 * kernel lets them have, and any content.
 *
 * An input is where the ring begins (2 bytes), and records: flags (1 byte), size (2 bytes), content.
 */
#include "tracer_readers.h" /* generated: the source in bpf_build.py */

enum { PAGE = 4096, RING = 2 * PAGE, ROOM = 3 };

static void put(char *memory, size_t at, const void *from, size_t size)
{
	for (size_t i = 0; i < size; i++)
		memory[(at + i) % RING] = ((const char *)from)[i];
}

/* Fills the ring; returns where its last record ends. */
static unsigned long fill(char *memory, unsigned long at, const uint8_t *data, size_t size)
{
	unsigned long begin = at;

	while (size >= 3) {
		__u32 length = (data[1] | data[2] << 8) % (sizeof(struct process_event) + 1);
		__u32 head = length | (data[0] == 1 ? BPF_RINGBUF_DISCARD_BIT : data[0] == 2 ? BPF_RINGBUF_BUSY_BIT : 0);
		size_t here = size - 3 < length ? size - 3 : length, whole = (RECORD_HEAD + length + 7) & ~7UL;

		if (at + whole - begin > RING)
			break;
		put(memory, at, &head, sizeof(head));
		put(memory, at + RECORD_HEAD, data + 3, here);
		data += 3 + here, size -= 3 + here, at += whole;
	}
	memcpy(memory + RING, memory, PAGE); /* as it is mapped twice */
	return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct drain drain;
	unsigned long consumed, produced;
	char *memory;

	if (size < 2)
		return 0;
	memory = calloc(1, RING + PAGE);
	consumed = (data[0] | data[1] << 8) & ~7UL;
	produced = fill(memory, consumed, data + 2, size - 2);
	struct ring ring = {&consumed, &produced, memory, RING, PAGE};

	drain.ring = &ring;
	drain.room = ROOM;
	drain.events = malloc(ROOM * sizeof(*drain.events));
	for (size_t count = ROOM; count == ROOM;) {
		count = drain_events(&drain);
		for (size_t i = 0; i < count; i++)
			if (drain.events[i].command_bytes > COMMAND_BYTES)
				abort();
	}
	for (int bucket = 0; bucket < BUCKETS; bucket++)
		for (int way = 0; way < WAYS; way++)
			if (drain.known[bucket][way].time_ns || drain.known[bucket][way].command)
				forget_process(&drain.known[bucket][way]);
	free(drain.events);
	free(memory);
	return 0;
}
