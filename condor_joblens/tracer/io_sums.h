/* SPDX-License-Identifier: Apache-2.0
 *
 * What was counted for jobs at level io, of all CPUs together: a job's end has no time for the steps of numpy.
 */
#ifndef JOBLENS_IO_SUMS_H
#define JOBLENS_IO_SUMS_H

enum { IO_KIND = 0xff, IO_CLASS = 8 }; /* of io_waiting.kind: what kind of wait, and by how many bits the class is above */

static void add_io_words(__u64 *sums, const __u64 *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sums[i] += words[i];
}

static void add_io_wait(struct io_counters *job, uint32_t kind, uint64_t length)
{
	size_t place = ((size_t)(kind >> IO_CLASS) - 1) * FILE_FIELDS + FILE_BLOCKED_NS;

	job->waits[(kind & IO_KIND) % WAITS] += length;
	if (kind >> IO_CLASS == FILE_LOCK + 1)
		job->file_lock_ns += length;
	else if (kind >> IO_CLASS && place < sizeof(job->files) / sizeof(*job->files))
		job->files[place] += length;
}

static uint64_t io_since(int64_t now, uint64_t since)
{
	return now > (int64_t)since ? now - since : 0;
}

static int compare_offsets(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

	return (a > b) - (a < b);
}

/* By the scheduler's clock, which all CPUs share but for microseconds: the median of those that know. */
static void learn_clock_offset(struct io_tables *from, const struct io_running *running, int64_t *room)
{
	size_t known = 0;

	for (uint32_t cpu = 0; cpu < from->cpus; cpu++)
		if (running[cpu].clock_offset)
			room[known++] = running[cpu].clock_offset;
	if (!known)
		return;
	qsort(room, known, sizeof(*room), compare_offsets);
	from->clock_offset = room[(known - 1) / 2] + (room[known / 2] - room[(known - 1) / 2]) / 2;
}

/* The job of that key, or NULL. `jobs` has for each row of counters one more than the place of its key in `keys`. */
static struct io_counters *job_of(uint64_t key, const struct io_tables *from, const uint64_t *keys,
				  const uint32_t *jobs, struct io_counters *sums)
{
	uint32_t row = (uint32_t)key - 1;

	if ((uint32_t)key == 0 || row >= from->max_jobs || !jobs[row] || keys[jobs[row] - 1] != key)
		return NULL;
	return &sums[jobs[row] - 1];
}

/* The sums for the jobs of `keys`, with the waits that still go on. They move from `waiting` to `running` to the
 * counters; these are read the other way round, so that none is met twice. Returns -1 for want of memory, or a key that
 * can't be. */
static int sum_io(struct io_tables *from, const uint64_t *keys, size_t count, struct io_counters *sums)
{
	const size_t words = sizeof(struct io_counters) / sizeof(__u64);
	struct io_running *running = malloc(from->cpus * (sizeof(*running) + sizeof(int64_t)));
	uint32_t *jobs = calloc(from->max_jobs, sizeof(*jobs));
	struct io_counters *job;
	struct timespec time;
	int result = -1;
	int64_t now;

	if (!running || !jobs)
		goto out;
	for (size_t i = 0; i < count; i++) {
		uint32_t row = (uint32_t)keys[i] - 1;

		if (row >= from->max_jobs)
			goto out;
		jobs[row] = i + 1;
		memset(&sums[i], 0, sizeof(sums[i]));
		for (uint32_t cpu = 0; cpu < from->cpus; cpu++)
			add_io_words((__u64 *)&sums[i],
				     (const __u64 *)&from->counts[(size_t)row * from->cpus + cpu], words);
		if (from->uring) {
			add_io_words(sums[i].files, from->uring[row].files,
				     sizeof(sums[i].files) / sizeof(*sums[i].files));
			sums[i].uncounted[UNCOUNTED_URING] += from->uring[row].others;
			sums[i].uncounted[UNCOUNTED_UNTOLD] += from->uring[row].untold;
		}
	}
	__sync_synchronize();
	memcpy(running, from->running, from->cpus * sizeof(*running));
	__sync_synchronize();
	learn_clock_offset(from, running, (int64_t *)(running + from->cpus));
	clock_gettime(CLOCK_MONOTONIC, &time);
	now = time.tv_sec * 1000000000LL + time.tv_nsec - from->clock_offset;
	for (uint32_t cpu = 0; cpu < from->cpus; cpu++) {
		job = job_of(running[cpu].key, from, keys, jobs, sums);
		if (job) {
			add_io_wait(job, WAIT_RUNNING, io_since(now, running[cpu].since_ns));
			add_io_wait(job, running[cpu].kind, running[cpu].waited_ns);
		}
	}
	for (uint32_t i = 0; i < from->threads; i++) {
		const struct io_waiting thread = from->waiting[i];

		job = thread.since_ns ? job_of(thread.key, from, keys, jobs, sums) : NULL;
		if (job)
			add_io_wait(job, thread.kind, io_since(now, thread.since_ns));
	}
	result = 0;
out:
	free(running);
	free(jobs);
	return result;
}

#endif
