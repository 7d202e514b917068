// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: the commands that a bash executes, each with its words as they were written.
 *
 * The probe is at the entry of execute_command_internal(command, asynchronous, pipe_in, pipe_out, ...), which bash calls
 * for each command of a script, and for those that others are made of. There last_command_exit_value still is that of
 * the command before. Another probe is at sh_exit(status). Memory is read as far as it is there.
 *
 * What tells nothing new is passed: a list, a group, `if` and a loop, which begin another command at once. Of the others
 * as many are told as the trace may read (struct traced_telling); the rest is counted.
 */
#include "traced.bpf.h"

enum { PASSED = 1 << 2 | 1 << 3 | 1 << 6 | 1 << 8 | 1 << 9 };	/* cm_while, cm_if, cm_connection, cm_until, cm_group */
enum { SIMPLE = 4 };	/* cm_simple of bash's command.h */
enum { AGAIN = 0x1 | 0x2 | 0x80 };	/* CMD_WANT_SUBSHELL, CMD_FORCE_SUBSHELL, CMD_TIME_PIPELINE: it begins once more, within */
enum { NAMED_NS = 50000000 };
enum { TEXTS_BYTES = TRACED_SCRIPT_BYTES + TRACED_LINE_BYTES };	/* the last word begins before */

/* Of bash's command.h, as it is from bash 4.0 to 5.3. */
struct shell_command {
	u32 type, flags, line;
	u64 redirects, simple;
};

struct shell_simple {
	u32 flags, line;
	u64 words;
};

struct shell_words {
	u64 next, word;
};

/* Most often bash's parser has put a command and what is simple in it, and a word and its place in the list, at these
 * distances: so both are read at once, and the pointers say whether they are what they seem to be. */
struct near_simple {
	struct shell_command command;
	char between[16];
	struct shell_simple simple;
};

struct near_word {
	u64 word;
	char between[56];
	struct shell_words node;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_FUNCTIONS);
	__type(key, u32);
	__type(value, struct traced_shell);
} jl_shells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct traced_telling);
} jl_telling SEC(".maps");

/* A shell. Its record is put together here: not on a stack, which is too short, nor in the ring, where each would take the
 * room of the longest one. */
struct shell_state {
	u64 top;	/* the highest stack pointer since its last hit that was told; 0: there was no other */
	u64 image, exec;	/* of the program that it is: where it is in memory, and how many it was before */
	u64 named_ns;	/* when $0 was read */
	u32 untold;
	u32 passed;	/* hits since the last one that was not passed: it pays for them too */
	struct traced_command told;
};

struct {
	__uint(type, STORAGE_OF_TASKS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct shell_state);
} jl_shell_states SEC(".maps");

/* A number at a distance from the probe; 0 if it is not there. */
static __always_inline s32 number_at(u64 here, s64 distance)
{
	s32 value = 0;

	if (distance)
		bpf_probe_read_user(&value, sizeof(value), (void *)(here + distance));
	return value;
}

static __always_inline bool is_skipped(u64 here, struct traced_shell *shell)
{
	u64 both = 0;

	if (shell->both)
		return !bpf_probe_read_user(&both, sizeof(both), (void *)(here + shell->both)) && both;
	return number_at(here, shell->breaking) || number_at(here, shell->continuing);
}

/* A word of a list, and what follows; false if it is not in memory. */
static __always_inline bool read_node(u64 list, struct shell_words *node, u64 *word)
{
	u64 begin = list - offsetof(struct near_word, node);
	struct near_word near;

	if (!bpf_probe_read_user(&near, sizeof(near), (void *)begin)) {
		*node = near.node;
		*word = near.word;
		if (node->word == begin)
			return true;
	} else if (bpf_probe_read_user(node, sizeof(*node), (void *)list)) {
		return false;
	}
	return !bpf_probe_read_user(word, sizeof(*word), (void *)node->word);
}

static __always_inline void read_words(struct traced_command *told, u64 list)
{
	struct shell_words node;
	u64 word;
	u64 at = told->script_bytes;

	for (u32 number = 0; number < TRACED_WORDS && list; number++) {
		barrier_var(at);	/* else the compiler checks it elsewhere, and the verifier does not see it */
		if (at >= TEXTS_BYTES)
			break;
		if (!read_node(list, &node, &word)) {
			told->how |= TRACED_UNREADABLE;
			break;
		}

		s64 bytes = bpf_probe_read_user_str(told->text + at, TRACED_WORD_BYTES, (void *)word);

		if (bytes < 1 || bytes > TRACED_WORD_BYTES) {
			told->how |= TRACED_UNREADABLE;
			break;
		}
		at += bytes;
		list = node.next;
		if (bytes == TRACED_WORD_BYTES) {
			told->how |= TRACED_CUT;	/* it may go on: what follows would have no sense */
			break;
		}
	}
	told->bytes = at;
	if (list)
		told->how |= TRACED_CUT;
}

/* $0, which stays in front of the words: a script can change it, and few ever do, so this is not done for each of them. */
static __always_inline void read_script(struct traced_command *told, u64 address)
{
	u64 name;
	s64 bytes;

	told->script_bytes = 0;
	if (bpf_probe_read_user(&name, sizeof(name), (void *)address))
		return;
	bytes = bpf_probe_read_user_str(told->text, TRACED_SCRIPT_BYTES, (void *)name);
	if (bytes > 0 && bytes <= TRACED_SCRIPT_BYTES)
		told->script_bytes = bytes;
}

/* The command, and where the simple one of `near` is from; 0: not read. False if the command is not in memory. */
static __always_inline bool read_command(struct near_simple *near, u64 *simple, u64 address)
{
	if (!bpf_probe_read_user(near, sizeof(*near), (void *)address)) {
		*simple = address + offsetof(struct near_simple, simple);
		return true;
	}
	return !bpf_probe_read_user(&near->command, sizeof(near->command), (void *)address);
}

static __always_inline void read_simple(struct traced_command *told, struct near_simple *near, u64 read)
{
	u64 at = near->command.simple;

	if (at != read && bpf_probe_read_user(&near->simple, sizeof(near->simple), (void *)at)) {
		told->how |= TRACED_UNREADABLE;
		return;
	}
	told->line = near->simple.line;
	read_words(told, near->simple.words);
}

/* Whether the shell does nothing more for this command than to begin another one. */
static __always_inline bool is_passed(const struct shell_command *command, u32 how)
{
	return command->type < 32 && PASSED >> command->type & 1 && !how && !(command->flags & AGAIN) && !command->redirects;
}

/* Whether there is room for one record more in what the trace may read. */
static __always_inline bool may_tell(struct traced_telling *telling)
{
	if (telling->left <= 0)
		return false;
	__sync_fetch_and_add(&telling->left, -1);
	return true;
}

static __always_inline void count_alone(struct shell_state *state, struct traced_telling *telling, bool is_command)
{
	state->untold++;
	if (is_command)
		__sync_fetch_and_add(&telling->commands, 1);
}

/* The flight recorder has it too: in the kernel, so that it is there whatever ends the job. */
static __always_inline void record_command(const struct traced_command *told, struct task_struct *task, u64 here)
{
	u32 begin = told->script_bytes;
	struct recorded *record;
	u64 number;

	if (begin > TRACED_SCRIPT_BYTES || told->bytes < begin)
		return;
	record = recorded_hit(TRACED_SHELLS, here, told->pid, task, RING_FREQUENT, RECORDED_COMMAND, &number);
	if (!record)
		return;
	bpf_probe_read_kernel(record->text, RECORDED_TEXT_BYTES, told->text + begin);
	record->text_bytes = told->bytes - begin < RECORDED_TEXT_BYTES ? told->bytes - begin : RECORDED_TEXT_BYTES;
	record->subject = RECORDED_ARGUMENTS;
	record->value = told->line;
	record->other = told->status;
	leave(record, number);
}

SEC("uprobe")
int jl_command(volatile u64 *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	struct traced_function *all = all_functions(), *function = looked_at(point, task, all);
	u64 here = context[IP], first = context[DI], stack = context[SP];
	u32 background = context[SI], none = 0;
	s32 from = context[DX], into = context[CX];
	struct near_simple near = {};
	struct shell_command *command = &near.command;
	struct traced_telling *telling;
	struct traced_command *told;
	struct traced_shell *shell;
	struct shell_state *state;
	bool is_off, is_end, is_command, is_told;
	u32 how = 0;
	u64 size, now, simple = 0;

	have_threads_stack((void *)context);
	if (!function || !all || !point)
		return 0;
	shell = bpf_map_lookup_elem(&jl_shells, &point->function);
	telling = bpf_map_lookup_elem(&jl_telling, &none);
	if (!shell || !telling)
		return 0;
	state = bpf_task_storage_get(&jl_shell_states, task, 0, STORAGE_CREATE);
	if (!state) {
		__sync_fetch_and_add(&all->lost, 1);
		return 0;
	}
	is_end = point->kind == TRACED_SHELL_END;
	if (!is_end) {
		if (!read_command(&near, &simple, first))
			how |= TRACED_UNREADABLE;
		how |= background ? TRACED_IN_BACKGROUND : 0;
		how |= from >= 0 ? TRACED_FROM_PIPE : 0;
		how |= into >= 0 ? TRACED_INTO_PIPE : 0;
		if (state->image != here || state->exec != task->self_exec_id) {	/* it has gone on as another program */
			state->image = here;
			state->exec = task->self_exec_id;
			state->top = state->named_ns = 0;
		}
		if (stack > state->top)
			state->top = stack;
		if (is_passed(command, how)) {
			state->passed++;
			return 0;
		}
		how |= is_skipped(here, shell) ? TRACED_SKIPPED : 0;
	}
	now = bpf_ktime_get_ns();
	is_off = is_too_hot_after(function, now, 1 + state->passed);
	state->passed = 0;
	if (is_off)
		function->off_ns = now;
	is_command = !is_end && command->type == SIMPLE && !(command->flags & AGAIN) &&
		     !(how & (TRACED_SKIPPED | TRACED_UNREADABLE));
	is_told = is_off || may_tell(telling);
	/* what is counted alone is in the flight recorder nevertheless */
	if (!is_told && !(is_command && job_of(settings.slot))) {
		count_alone(state, telling, is_command);
		return 0;
	}
	told = &state->told;
	told->time_ns = now;
	told->stack = stack;
	told->top = is_end ? stack : state->top;
	told->image = here;
	if (!told->pid)	/* that of a task is the same for its life */
		told->pid = pid_in(settings.pid_namespace_inode, task->group_leader);
	told->function = point->function;
	told->kind = is_off ? TRACED_OFF : point->kind;
	told->untold = state->untold;
	told->status = is_end ? (u8)first : number_at(here, shell->status);
	told->line = 0;
	told->type = command->type;
	told->flags = command->flags;
	told->trap = is_end ? 0 : number_at(here, shell->trap);
	told->how = how;
	told->bytes = 0;
	if (is_command && !is_off) {
		if (shell->script && now - state->named_ns >= NAMED_NS) {
			read_script(told, here + shell->script);
			state->named_ns = now;
		}
		read_simple(told, &near, simple);
		if (told->kind == TRACED_COMMAND)
			record_command(told, task, here);
	}
	if (!is_told) {
		count_alone(state, telling, is_command);
		return 0;
	}
	size = told->bytes;
	barrier_var(size);	/* else the compiler checks another copy of it */
	if (size > sizeof(told->text))	/* never; the verifier does not know it any more */
		return 0;
	size += offsetof(struct traced_command, text);
	if (bpf_ringbuf_output(&jl_hits, told, size, is_off ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		count_alone(state, telling, is_command);
	else
		state->top = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
