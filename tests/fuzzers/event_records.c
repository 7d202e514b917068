/* SPDX-License-Identifier: Apache-2.0
 *
 * Making records of process events of any content (tracer/records.h), which marks what may hold a secret.
 */
#include "secret_scan.h" /* generated: the table of common/scan.py */
#include "tracer_readers.h" /* generated: the source in bpf_build.py */

static void check_text(const char *text, size_t size)
{
	for (size_t i = 0; i < size && text[i]; i++)
		if (text[i] < 32 || text[i] > 126)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t count = (size + sizeof(struct process_event) - 1) / sizeof(struct process_event);
	struct process_event *events = calloc(count + 1, sizeof(*events));
	struct event_record *records = malloc((2 * count + 1) * sizeof(*records));
	struct record_marks *marks = malloc((2 * count + 1) * sizeof(*marks));
	__u64 *runs = malloc((count + 1) * sizeof(*runs));
	struct record_facts facts = {.run_numbers = runs, .scan = SECRET_SCAN};

	if (size)
		memcpy(events, data, size);
	for (size_t i = 0; i < count; i++)
		runs[i] = events[i].pid % 4;
	size_t made = make_records(events, count, &facts, records, marks);

	if (made > 2 * count)
		abort();
	for (size_t i = 0; i < made; i++) {
		check_text(records[i].text, sizeof(records[i].text));
		if (!(marks[i].mark & MARK_PROGRAM))
			check_text(records[i].program, sizeof(records[i].program));
	}
	free(events), free(records), free(marks), free(runs);
	return 0;
}
