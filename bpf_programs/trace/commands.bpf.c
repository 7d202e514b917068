// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level trace: the commands that a bash executes, each with its words as they were written.
 *
 * The probe is at the entry of execute_command_internal(command, asynchronous, pipe_in, pipe_out, ...), which bash calls
 * for each command of a script, and for those that others are made of. There last_command_exit_value still is that of
 * the command before. Another probe is at sh_exit(status). Memory is read as far as it is there.
 */
#define RING_BYTES (4 << 20)	/* 5,000 commands */
#include "traced.bpf.h"

enum { SIMPLE = 4 };	/* cm_simple of bash's command.h */

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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_FUNCTIONS);
	__type(key, u32);
	__type(value, struct traced_shell);
} jl_shells SEC(".maps");

/* A number at a distance from the probe; 0 if it is not there. */
static __always_inline s32 number_at(u64 here, s64 distance)
{
	s32 value = 0;

	if (distance)
		bpf_probe_read_user(&value, sizeof(value), (void *)(here + distance));
	return value;
}

static __always_inline void read_words(struct traced_command *told, u64 list)
{
	struct shell_words node;
	u64 word;
	u64 at = 0;

	for (u32 number = 0; number < TRACED_WORDS && list; number++) {
		barrier_var(at);	/* else the compiler checks it elsewhere, and the verifier does not see it */
		if (at >= TRACED_LINE_BYTES)
			break;
		if (bpf_probe_read_user(&node, sizeof(node), (void *)list) ||
		    bpf_probe_read_user(&word, sizeof(word), (void *)node.word)) {
			told->how |= TRACED_UNREADABLE;
			break;
		}

		s64 bytes = bpf_probe_read_user_str(told->text + at, TRACED_WORD_BYTES, (void *)word);

		if (bytes < 1 || bytes > TRACED_WORD_BYTES) {
			told->how |= TRACED_UNREADABLE;
			break;
		}
		at += bytes;
		told->words++;
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

static __always_inline void read_script(struct traced_command *told, u64 address)
{
	u64 name;

	if (!bpf_probe_read_user(&name, sizeof(name), (void *)address))
		bpf_probe_read_user_str(told->script, sizeof(told->script), (void *)name);
}

static __always_inline void read_simple(struct traced_command *told, u64 address)
{
	struct shell_simple simple;

	if (bpf_probe_read_user(&simple, sizeof(simple), (void *)address)) {
		told->how |= TRACED_UNREADABLE;
		return;
	}
	told->line = simple.line;
	read_words(told, simple.words);
}

/* All of it but its texts: they are not there in a record that is no simple command's. */
static __always_inline void begin(struct traced_command *told, struct task_struct *task, struct traced_point *point,
				  struct traced_function *all, u64 now, u64 stack, u64 image)
{
	__builtin_memset(told, 0, offsetof(struct traced_command, script));
	describe(&told->hit, task, point, all, now);
	told->hit.stack = stack;
	told->hit.values[0] = image;
}

SEC("uprobe")
int jl_command(volatile u64 *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct traced_point *point = point_of((void *)context);
	struct traced_function *all = all_functions(), *function = looked_at(point, task);
	u64 now = bpf_ktime_get_ns(), here = context[IP], first = context[DI], stack = context[SP];
	u64 background = context[SI], from = context[DX], into = context[CX];
	struct shell_command command = {};
	struct traced_shell *shell;
	struct traced_command *told;
	s32 status = 0, trap = 0;
	u32 how = 0;
	bool is_off, is_simple, is_end;

	if (!function || !all || !point)
		return 0;
	shell = bpf_map_lookup_elem(&jl_shells, &point->function);
	if (!shell)
		return 0;
	is_off = is_too_hot(function, now);
	is_end = point->kind == TRACED_SHELL_END;
	if (is_end) {
		status = (u8)first;
	} else {
		if (bpf_probe_read_user(&command, sizeof(command), (void *)first))
			how |= TRACED_UNREADABLE;
		status = number_at(here, shell->status);
		trap = number_at(here, shell->trap);
		how |= (u32)background ? TRACED_IN_BACKGROUND : 0;
		how |= (s32)from >= 0 ? TRACED_FROM_PIPE : 0;
		how |= (s32)into >= 0 ? TRACED_INTO_PIPE : 0;
		if (number_at(here, shell->breaking) || number_at(here, shell->continuing))
			how |= TRACED_SKIPPED;
	}
	is_simple = !is_end && !is_off && command.type == SIMPLE && !(how & TRACED_UNREADABLE);
	/* the sizes are constants: the verifier wants them so */
	if (is_simple)
		told = bpf_ringbuf_reserve(&jl_hits, sizeof(*told), 0);
	else
		told = bpf_ringbuf_reserve(&jl_hits, offsetof(struct traced_command, script), 0);
	if (is_off)
		function->off_ns = now;
	if (!told) {
		__sync_fetch_and_add(&all->lost, 1);
		return 0;
	}
	begin(told, task, point, all, now, stack, here);
	if (is_off)
		told->hit.kind = TRACED_OFF;
	told->status = status;
	told->type = command.type;
	told->flags = command.flags;
	told->trap = trap;
	told->how = how;
	if (is_simple) {
		told->script[0] = 0;
		if (shell->script)
			read_script(told, here + shell->script);
		read_simple(told, command.simple);
	}
	bpf_ringbuf_submit(told, is_off ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
