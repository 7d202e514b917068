/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How an event goes into a ring of the flight recorder: from its own programs, and from those at probes of a trace.
 *
 * Who includes it defines PLACES: how many places each ring of a job has (enum recorder_ring).
 */
#ifndef JOBLENS_RINGS_BPF_H
#define JOBLENS_RINGS_BPF_H

#include "mapped_array.bpf.h"
#include "joblens_recorder.h"

MAPPED_ARRAY(jl_rec_jobs, struct recorded_job);	/* slots */
MAPPED_ARRAY(jl_rec_rows, struct recorder_row);	/* rows */
MAPPED_ARRAY(jl_records, struct recorded);		/* rows × places of both rings */

static __always_inline struct recorded_job *job_of(u32 slot)
{
	struct recorded_job *job = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_rec_jobs, &slot);

	return job && job->key ? job : 0;
}

/* The next place of a ring, which is ours until `leave`; null where somebody else is writing there. */
static __always_inline struct recorded *take_place(struct recorded_job *job, const u32 ring, u64 *number)
{
	u32 row = job->row, places = PLACES[ring];
	struct recorder_row *heads = bpf_map_lookup_elem(&jl_rec_rows, &row);
	struct recorded *record;
	u64 before;

	if (!heads || !places)
		return 0;
	*number = __sync_fetch_and_add(&heads->heads[ring], 1) + 1;

	u32 index = row * (PLACES[RING_RARE] + PLACES[RING_FREQUENT]) + (ring == RING_RARE ? 0 : PLACES[RING_RARE]) +
		    (u32)((*number - 1) % places);

	record = bpf_map_lookup_elem(&jl_records, &index);
	if (!record)
		return 0;
	before = *(volatile u64 *)&record->ended;
	if (before >= *number || __sync_val_compare_and_swap(&record->begun, before, *number) != before) {
		__sync_fetch_and_add(&job->lost, 1);
		return 0;
	}
	record->key = job->key;
	record->time_ns = bpf_ktime_get_ns();
	record->text_bytes = 0;
	record->subject = RECORDED_NOTHING;
	record->value = record->other = 0;
	return record;
}

/* What was written before is seen by who sees the number. */
static __always_inline void leave(struct recorded *record, u64 number)
{
#if defined(__TARGET_ARCH_x86)
	/* stores are seen in their order here, and an atomic exchange takes as long as the rest of a short record */
	barrier();
	*(volatile u64 *)&record->ended = number;
#else
	__sync_lock_test_and_set(&record->ended, number);
#endif
}

#endif
