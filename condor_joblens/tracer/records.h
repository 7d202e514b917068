/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes records of the ring of events from the kernel's process events, in one pass. A batch is often of a few events,
 * whose records then cost less than a column of numpy would.
 *
 * What may hold a secret or could break a line is only marked here (common/scan.py): Python takes it apart.
 */
#ifndef JOBLENS_RECORDS_H
#define JOBLENS_RECORDS_H

enum { FOUND = 0x8000, BYTE_VALUES = 256 };

/* Whether anything in the text asks for a closer look. `scan` has a row of 256 for each state; FOUND is in the last. */
static bool asks_for_look(const __u16 *scan, const char *text, size_t size)
{
	__u32 state = 0, run = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned char byte = text[i];
		bool alnum = (byte >= '0' && byte <= '9') || ((byte | 32) >= 'a' && (byte | 32) <= 'z');

		state = scan[state * BYTE_VALUES + byte];
		run = alnum ? run + 1 : 0;
		if (state & FOUND || run >= LONG_RUN)
			return true;
	}
	return false;
}

/* The arguments on one line. What is longer is cut: text with other than ASCII in it is Python's. */
static void fill_line(char *to, size_t room, const char *text, size_t size)
{
	if (size > room)
		size = room;
	for (size_t i = 0; i < size; i++)
		to[i] = text[i] ? text[i] : ' ';
}

static void fill_record(struct event_record *record, const struct process_event *event,
			const struct record_facts *facts)
{
	memset(record, 0, sizeof(*record));
	record->time = event->time_ns * 1e-9 + facts->epoch;
	record->kind = event->kind == PROCESS_EXEC ? RECORD_EXEC : RECORD_EXIT;
	record->pid = event->pid;
	record->parent_pid = event->parent_pid;
	record->exit_code = event->exit_code;
	record->limit = -1;
	record->lived_seconds = event->lived_ns * 1e-9;
	fill_line(record->program, sizeof(record->program), event->program, strnlen(event->program, PROGRAM_BYTES));
}

/* The command without the NULs behind it. */
static size_t command_size(const struct process_event *event)
{
	size_t size = event->command_bytes <= COMMAND_BYTES ? event->command_bytes : 0;

	while (size && !event->command[size - 1])
		size--;
	return size;
}

static __u32 mark_of(const struct process_event *event, struct event_record *record, const __u16 *scan)
{
	__u32 mark = 0;

	if (asks_for_look(scan, event->program, strnlen(event->program, PROGRAM_BYTES)))
		mark |= MARK_PROGRAM;
	if (event->kind == PROCESS_EXEC) {
		size_t size = command_size(event);

		/* one that fills its place may go on */
		if (size == COMMAND_BYTES || asks_for_look(scan, event->command, size))
			mark |= MARK_TEXT;
		else
			fill_line(record->text, sizeof(record->text), event->command, size);
	} else {
		if (event->exit_code)
			mark |= MARK_NAME;
		if (event->exit_code || event->flags & PROCESS_MAIN)
			mark |= MARK_ENDED;
	}
	return mark;
}

/* Records of the events whose run is known, from `to` on, with a mark each; returns how many: at most two an event. */
static size_t make_records(const struct process_event *events, size_t count, struct record_facts *facts,
			   struct event_record *to, struct record_marks *marks)
{
	size_t made = 0;

	for (size_t i = 0; i < count; i++) {
		const struct process_event *event = &events[i];

		if (!facts->run_numbers[i])
			continue;
		/* the OOM killer's victim has two records: that of the choice, and its end */
		for (int choice = !!(event->flags & PROCESS_OOM_VICTIM); choice >= 0; choice--, made++) {
			struct event_record *record = &to[made];

			fill_record(record, event, facts);
			record->run_number = facts->run_numbers[i];
			marks[made].event = i;
			marks[made].mark = mark_of(event, record, facts->scan);
			if (choice) {
				record->kind = RECORD_OOM;
				record->exit_code = 0;
				marks[made].mark |= MARK_NAME | MARK_CHOICE;
			}
			facts->marked += !!marks[made].mark;
		}
	}
	return made;
}

#endif
