/* SPDX-License-Identifier: Apache-2.0
 *
 * The files in /run/joblens: how they lie in memory, and how to read them without a lock. For programs in C; Python's
 * own layout is checked against this header. docs/shared-memory.md says why it is so, examples/rows.c uses it.
 *
 *	rows	what each job has used so far: a double buffer, a record a run
 *	ended	the last records of the runs that ended most recently, in the same form
 *	events	what happened: a ring of records with the sequence numbers 1, 2, 3 ...
 *	artifacts/	a folder of files, each with a struct joblens_artifact before its content
 *
 * One writer, any number of readers; nobody waits for anybody, and a reader needs no more than PROT_READ.
 * All numbers are in the byte order of the machine.
 */
#ifndef JOBLENS_SHM_H
#define JOBLENS_SHM_H

#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define JOBLENS_LAYOUT 2
#define JOBLENS_BYTE_ORDER 0x01020304u
#define JOBLENS_ROWS "JLROWS\0"
#define JOBLENS_EVENTS "JLEVENTS"
#define JOBLENS_ARTIFACT "JLARTFCT"
#define JOBLENS_ARTIFACT_VERSION 2

/* What follows is plain C for cffi too, up to the next such comment. cffi: begin */

/* At the start of each file. */
struct joblens_header {
	char magic[8];           /* JOBLENS_ROWS or JOBLENS_EVENTS */
	uint32_t layout;         /* JOBLENS_LAYOUT, or this is another header */
	uint32_t byte_order;     /* JOBLENS_BYTE_ORDER */
	uint64_t schema_hash;    /* of the records' columns: names, types and places */
	uint64_t record_bytes;   /* a multiple of 8 */
	uint64_t capacity;       /* records in each of the two buffers, or in the ring */
	uint64_t columns;        /* how many joblens_column there are, from columns_at on */
	uint64_t columns_at;
	uint64_t places_at;      /* rows: uint64_t[2][capacity], see below; 0 in the ring */
	uint64_t records_at;
	uint64_t identity;       /* random; events: the same as long as their numbers go on across writers */
	uint64_t generation;     /* of this file: 1 for the first writer since the machine came up, 2 for the next ... */
	uint64_t writer_start;   /* clock ticks from the machine's start to the writer's (field 22 of /proc/PID/stat) */
	uint32_t writer_pid;     /* in the writer's own pid namespace */
	uint32_t reserved;

	/* Rows: publication n is in buffer n & 1. */
	uint64_t begun;          /* n before the first byte of publication n is written */
	uint64_t published;      /* n after its last byte; 0: nothing yet */
	uint64_t count[2];       /* records in each buffer, in rising order of their places */
	double time[2];          /* when they were taken, epoch seconds */

	/* Events: record n is at index n % capacity, and begins with its number (0: being written). */
	uint64_t first;          /* the lowest number that was ever in this file */
	uint64_t head;           /* the number of the last record; 0: none yet */
	uint32_t wake;           /* a futex word: changes with every batch of events and every publication of rows */
	uint32_t reserved_too;
};

/* One column of a record. */
struct joblens_column {
	char name[48];           /* as in docs/metrics.md: cpu_user_seconds */
	char type;               /* i and u: integer, f: floating point, b: 0 or 1, S: UTF-8 padded with NUL */
	char reserved[7];
	uint32_t offset;         /* from the start of the record */
	uint32_t bytes;
};

/*
 * At the start of each file in artifacts/. The file never changes after it got its name. Texts are UTF-8 padded with NUL,
 * and need not end with one.
 */
struct joblens_artifact {
	char magic[8];           /* JOBLENS_ARTIFACT */
	uint32_t version;        /* JOBLENS_ARTIFACT_VERSION, or this is another header */
	uint32_t byte_order;     /* JOBLENS_BYTE_ORDER */
	uint32_t content_at;     /* offset of the content: the size of this header */
	uint32_t header_crc;     /* CRC-32, as zlib computes it, of this header with 0 in this field */
	uint64_t sequence;       /* of the artifact on this node: rises, and is never used twice */
	uint64_t run_number;     /* the run that it is about, as in rows and events */
	uint64_t length;         /* bytes of the content, up to the end of the file */
	double begun;            /* of the time that it shows, epoch seconds */
	double ended;
	uint32_t uid;            /* the user as whom the job runs; UINT32_MAX: nobody but root may have it */
	uint32_t reserved;
	uint8_t sha256[32];      /* of the content */
	char kind[32];           /* profile, trace, hang ...: small letters, digits and _, a letter first */
	char content_type[64];   /* a media type: text/plain */
	char content_encoding[16]; /* as in HTTP: gzip; empty: none */
	char run[176];           /* GlobalJobId, # and the number of this start of the job */
	char owner[64];          /* whom the job runs for */
	char slot[64];
	char sinks[64];          /* the sinks that get it, with commas between; empty: all */
	char node[256];          /* the machine */
	/* What the job's own ad says of the run and its owner, if it was over before a startd could confirm that. Both are
	 * empty if the two above are sure. */
	char claimed_run[176];
	char claimed_owner[64];
};

/* cffi: end */

static inline const void *joblens_at(const struct joblens_header *header, uint64_t offset)
{
	return (const char *)header + offset;
}

/* Word by word, so that no word is read in halves while the writer changes it. */
static inline void joblens_copy(void *to, const void *from, uint64_t bytes)
{
	const uint64_t *source = (const uint64_t *)from;
	uint64_t *target = (uint64_t *)to;

	for (uint64_t word = 0; word < bytes / 8; word++)
		target[word] = __atomic_load_n(&source[word], __ATOMIC_RELAXED);
}

/* Whether `bytes` at `memory` are a whole file with this magic and layout: NULL, or what is wrong with it. */
static inline const char *joblens_check(const void *memory, uint64_t bytes, const char *magic)
{
	const struct joblens_header *header = (const struct joblens_header *)memory;
	uint64_t buffers = memcmp(magic, JOBLENS_ROWS, 8) ? 1 : 2;

	if (bytes < sizeof(*header) || memcmp(header->magic, magic, 8))
		return "is no file of joblensd's";
	if (header->layout != JOBLENS_LAYOUT || header->byte_order != JOBLENS_BYTE_ORDER)
		return "was written by another version of JobLens than this one";
	if (header->record_bytes < 8 || header->record_bytes % 8 || header->record_bytes > 1 << 20 ||
	    !header->capacity || header->capacity > UINT32_MAX || header->columns > 65536)
		return "is damaged: its header says what can't be";
	if (header->columns_at > bytes || header->places_at > bytes || header->records_at > bytes ||
	    header->columns_at % 8 || header->places_at % 8 || header->records_at % 8 ||
	    header->columns * sizeof(struct joblens_column) > bytes - header->columns_at ||
	    (header->places_at && buffers * header->capacity * 8 > bytes - header->places_at) ||
	    buffers * header->capacity * header->record_bytes > bytes - header->records_at)
		return "is truncated";
	return NULL;
}

/*
 * Whether `bytes` at `memory` are a whole artifact: NULL, or what is wrong with it. The two checksums are not looked at.
 */
static inline const char *joblens_check_artifact(const void *memory, uint64_t bytes)
{
	const struct joblens_artifact *header = (const struct joblens_artifact *)memory;

	if (bytes < sizeof(header->magic) || memcmp(header->magic, JOBLENS_ARTIFACT, sizeof(header->magic)))
		return "is no artifact of joblensd's";
	if (bytes < sizeof(*header))
		return "is truncated";
	if (header->version != JOBLENS_ARTIFACT_VERSION || header->byte_order != JOBLENS_BYTE_ORDER)
		return "was written by another version of JobLens than this one";
	if (header->content_at != sizeof(*header))
		return "is damaged: its header says what can't be";
	if (header->length > bytes - header->content_at)
		return "is truncated";
	if (header->length < bytes - header->content_at)
		return "is damaged: it is longer than its header says";
	return NULL;
}

/* The column of that name; NULL where there is none. */
static inline const struct joblens_column *joblens_column(const struct joblens_header *header, const char *name)
{
	const struct joblens_column *columns = (const struct joblens_column *)joblens_at(header, header->columns_at);

	for (uint64_t index = 0; index < header->columns; index++)
		if (!strncmp(columns[index].name, name, sizeof(columns[index].name)))
			return &columns[index];
	return NULL;
}

#define JOBLENS_WHOLE_ATTEMPTS 8

/*
 * Copies the rows in front to `rows`, which has room for header->capacity of them. Returns how many, or -1 where the
 * writer left a publication half done; `*published` and `*time` say which publication the last of them is from.
 *
 * Each row is whole, and all are of one publication. A reader that is so slow that the writer overtakes it time and
 * again gets rows of several: what has been copied stands then, and it goes on from the same place in the new
 * publication, so that it ends however often that happens. A run keeps its place, so none is seen twice.
 */
static inline int64_t joblens_read_rows(const struct joblens_header *header, void *rows, uint64_t *published, double *time)
{
	uint64_t next = 0; /* the lowest place that has not been copied */
	int64_t copied = 0;

	for (int idle = 0, whole = JOBLENS_WHOLE_ATTEMPTS; idle < 1000; idle++) {
		uint64_t number = __atomic_load_n(&header->published, __ATOMIC_ACQUIRE), front = number & 1;
		uint64_t count = __atomic_load_n(&header->count[front], __ATOMIC_RELAXED);
		const uint64_t *places = (const uint64_t *)joblens_at(header, header->places_at) + front * header->capacity;
		const char *records = (const char *)joblens_at(header, header->records_at) +
				      front * header->capacity * header->record_bytes;

		*published = number;
		*time = number ? header->time[front] : 0;
		for (uint64_t index = 0; number && index < count && index < header->capacity; index++) {
			uint64_t place = __atomic_load_n(&places[index], __ATOMIC_RELAXED);

			if (place < next || (uint64_t)copied == header->capacity)
				continue;
			joblens_copy((char *)rows + copied * header->record_bytes, records + index * header->record_bytes,
				     header->record_bytes);
			/* the copy must be done before `begun` is looked at */
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			if (__atomic_load_n(&header->begun, __ATOMIC_RELAXED) >= number + 2)
				break;
			next = place + 1;
			copied++;
			idle = 0;
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&header->begun, __ATOMIC_RELAXED) < number + 2)
			return copied;
		if (whole-- > 0)
			next = copied = 0;
	}
	return -1;
}

/*
 * Copies up to `room` events behind number `*last` to `events`, and moves `*last` to the last that was copied or is
 * known to be lost; adds to `*missed` how many were overwritten before they could be copied. Returns how many there are.
 */
static inline uint64_t joblens_read_events(const struct joblens_header *header, uint64_t *last, void *events,
					   uint64_t room, uint64_t *missed)
{
	uint64_t head = __atomic_load_n(&header->head, __ATOMIC_ACQUIRE), copied = 0, oldest = header->first;

	if (head >= oldest + header->capacity)
		oldest = head - header->capacity + 1;
	if (*last + 1 < oldest) {
		*missed += oldest - 1 - *last;
		*last = oldest - 1;
	}
	while (*last < head && copied < room) {
		uint64_t number = *last + 1;
		const uint64_t *record = (const uint64_t *)((const char *)joblens_at(header, header->records_at) +
							    number % header->capacity * header->record_bytes);
		char *target = (char *)events + copied * header->record_bytes;
		int whole = __atomic_load_n(record, __ATOMIC_ACQUIRE) == number;

		if (whole) {
			joblens_copy(target, record, header->record_bytes);
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			whole = __atomic_load_n(record, __ATOMIC_RELAXED) == number;
		}
		if (whole)
			copied++;
		else
			++*missed;
		*last = number;
	}
	return copied;
}

/* The futex word as it is now: take it before reading, and wait for its change after. */
static inline uint32_t joblens_wake_word(const struct joblens_header *header)
{
	return __atomic_load_n(&header->wake, __ATOMIC_ACQUIRE);
}

/* Waits until the word is no longer `seen`, for so many seconds at most. */
static inline void joblens_wait(const struct joblens_header *header, uint32_t seen, double seconds)
{
	struct timespec most = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	syscall(SYS_futex, &header->wake, FUTEX_WAIT, seen, &most, NULL, 0);
}

#endif
