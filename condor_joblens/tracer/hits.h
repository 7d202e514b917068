/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes hits of probes out of their ring.
 */
#ifndef JOBLENS_HITS_H
#define JOBLENS_HITS_H

_Static_assert(TRACED_SHORT_BYTES == offsetof(struct traced_hit, values) + sizeof(uint64_t), "a short hit has one value");

/* Those of functions that were told so far, as far as there is room; returns how many. What one does not have is 0. */
static size_t take_hits(struct traced_ring *told, struct traced_texts *hits, size_t room)
{
	const size_t head = offsetof(struct traced_record, told), least = head + TRACED_SHORT_BYTES;
	uint64_t at = told->taken, bytes;
	size_t count = 0;

	while (count < room && at != __atomic_load_n(&told->given, __ATOMIC_ACQUIRE)) {
		struct traced_record *record = (void *)(told->records + (at & (TRACED_RING_BYTES - 8)));

		bytes = __atomic_load_n(&record->bytes, __ATOMIC_ACQUIRE);
		if (bytes < least || bytes > sizeof(*record))	/* 0: somebody is writing it */
			break;
		memset(&hits[count], 0, sizeof(hits[count]));
		memcpy(&hits[count++], &record->told, bytes - head);
		memset(record, 0, bytes);
		at += bytes;
		__atomic_store_n(&told->taken, at, __ATOMIC_RELEASE);
	}
	return count;
}

enum { THROW_PAGES = 4 };

_Static_assert(sizeof(struct traced_throw) + RECORD_HEAD <= THROW_PAGES * 4096, "a throw can reach beyond its pages");

/* The same of throws, from a ring that was mapped for so many pages. */
static size_t take_throws(struct ring *ring, struct traced_throw *throws, size_t room)
{
	const void *record;
	size_t count = 0, size;

	while (count < room && (record = oldest_record(ring, &size))) {
		if (size == sizeof(struct traced_throw))
			memcpy(&throws[count++], record, size);
		pass_record(ring, size);
	}
	return count;
}

_Static_assert(sizeof(struct traced_command) + RECORD_HEAD <= 4096, "a command can reach beyond the page");

/* The same of commands. Of each so much of its texts as it has: nobody may read what is behind them. */
static size_t take_commands(struct ring *ring, struct traced_command *commands, size_t room)
{
	const size_t least = offsetof(struct traced_command, text);
	const void *record;
	size_t count = 0, size;

	while (count < room && (record = oldest_record(ring, &size))) {
		if (size >= least && size <= sizeof(struct traced_command)) {
			struct traced_command *command = &commands[count++];

			memcpy(command, record, size);
			if (command->bytes > size - least)
				command->bytes = 0;
			if (command->script_bytes > command->bytes)	/* it has no words, and $0 is not before them */
				command->script_bytes = command->bytes;
		}
		pass_record(ring, size);
	}
	return count;
}

#endif
