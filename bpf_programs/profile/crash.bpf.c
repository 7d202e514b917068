// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level profile: where a thread was when a signal killed its process.
 *
 * The kernel tells of each signal that a thread takes, in that thread, before it acts on it. If the process has a handler
 * for it, this is no death. User registers and memory are as the signal found them. What was in the kernel is gone: a
 * thread that waits has been woken by then.
 */
#include "samples.bpf.h"
#include "exceptions.bpf.h"

enum {
	SIGILL = 4, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8, SIGKILL = 9, SIGSEGV = 11, SIGTERM = 15, SIGXCPU = 24,
	SIGNAL_UNKILLABLE = 0x40,	/* linux/sched/signal.h */
	PAGE_BYTES = 4096,
	CRASH_EVERY_NS = 50000000,	/* crashes of a slot that are told, but for that of its first process */
};

/* A program of its own, so a scratch of its own: the clock of samples can interrupt it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} jl_crash_walk SEC(".maps");

#ifdef BEFORE_5_17
#define OWN_WALK jl_crash_walk
#include "frame_pointers.bpf.h"
#define CRASH jl_crash_old	/* before Linux 5.17, see crash_old.bpf.c */
#else
#define CRASH jl_crash
#endif

static __always_inline bool dumps_core(int signal)
{
	return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
	       signal == SIGXCPU;
}

/* Whether somebody outside of the job has told its first process to end, and this is its first thread. Basic's programs
 * have kept who sent it. The kernel makes a SIGKILL for each thread of a SIGTERM that nobody handles. If all threads
 * block it, as a shell does while it starts a program, it is a SIGTERM when it is let through. */
static __always_inline bool is_told_to_end(struct slot_counters *count, struct task_struct *task, int signal)
{
	u32 tgid = MEMBER(task, tgid);

	if (MEMBER(task, pid) != tgid || tgid != count->main_tgid || !count->ender_ns || count->ender_signal != SIGTERM)
		return false;
	if (signal == SIGTERM)	/* the first process of a PID namespace ignores what it does not handle */
		return !(MEMBER(task, signal, flags) & SIGNAL_UNKILLABLE);
	return exit_code_of(task) == SIGTERM;
}

#ifdef BEFORE_5_17

/* Fills the user stack; all bytes of what is told. */
static __always_inline u64 tell_about(struct walk *walk, struct task_struct *task, void *ctx, int signal)
{
	struct sample *sample = &walk->sample;
	u32 flags = walk->flags;
	u64 size = sizeof(*sample);

	walk->at = sample->kernel_frames = sample->user_frames = sample->python_frames = 0;
	if (!(flags & SAMPLE_NOT_OURS))
		size = take_guessed_stack(walk, ctx, task);
	sample->flags = walk->flags | flags;
	return size;
}

#else

/* What was called is no code, as by a null pointer: its caller has left where it is on top of the stack. */
static __always_inline void leave_no_code(struct walk *walk)
{
	u64 caller;
	u8 code;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)walk->ip) == 0 || !word(walk->sp, &caller))
		return;
	walk->frames[0] = walk->ip & ~(1ULL << 63);
	walk->at = 1;
	walk->ip = caller;
	walk->sp += sizeof(caller);
	walk->has_called = true;
	walk->flags |= SAMPLE_GUESSED;
}

/* Fills the user stack; all bytes of what is told. */
static __always_inline u64 take_crash_stack(struct walk *walk, struct task_struct *task)
{
	struct sample *sample = &walk->sample;
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);

	walk->at = sample->kernel_frames = 0;
	walk->python_frames = 0;
	walk->has_called = walk->is_unknown = walk->is_new = false;
	if (regs && !(walk->flags & SAMPLE_NOT_OURS)) {
		saved_registers(walk, regs);	/* of a call of nothing the instruction is 0 */
		leave_no_code(walk);
		unwind(walk, task);
	}
	sample->user_frames = walk->at;
	if (!(walk->flags & SAMPLE_NOT_OURS))
		add_python(walk, task);
	sample->python_frames = walk->python_frames;
	sample->flags = walk->flags;
	return sizeof(*sample) + walk->at * sizeof(u64);
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct told_memory);
} jl_crash_memory SEC(".maps");

struct codes_of_crash {
	struct walk *walk;
	struct python_process *python;
	struct told_memory *told;
	u32 first;	/* of walk->frames, the innermost frame's code object */
};

/* Tells so many bytes at an address, or as many as there are in its page. */
static __always_inline void tell_memory(struct told_memory *told, u64 address, u32 size)
{
	if (!address)
		return;
	if (bpf_probe_read_user(told->bytes, size, (void *)address)) {
		u32 left = PAGE_BYTES - address % PAGE_BYTES;

		if (left >= size || bpf_probe_read_user(told->bytes, left & (TOLD_TABLE_BYTES - 1), (void *)address))
			return;
		size = left & (TOLD_TABLE_BYTES - 1);
	}
	told->address = address;
	size += __builtin_offsetof(struct told_memory, bytes);
	if (size <= sizeof(*told))
		bpf_ringbuf_output(&jl_samples, told, size, BPF_RB_NO_WAKEUP);
}

/* Tells a code object, its names and its line table. */
static long tell_code(u32 index, struct codes_of_crash *codes)
{
	struct python_process *python = codes->python;
	u32 at = codes->first + 2 * index;
	u64 code, first, name = 0, file = 0, table = 0;

	if (index >= codes->walk->python_frames || at >= SAMPLE_WORDS)
		return 1;
	code = codes->walk->frames[at] & ~PYTHON_CODE_BITS;
	first = code + python->code_first;
	if (!word(first + python->code_name, &name) || !word(first + python->code_filename, &file) ||
	    !word(first + python->code_line_table, &table))
		return 0;
	tell_memory(codes->told, code, TOLD_CODE_BYTES);
	tell_memory(codes->told, name, TOLD_TEXT_BYTES);
	tell_memory(codes->told, file, TOLD_TEXT_BYTES);
	tell_memory(codes->told, table, TOLD_TABLE_BYTES);
	return 0;
}

/* The innermost functions of Python: most have never been in a sample. */
static __always_inline void tell_codes(struct walk *walk)
{
	u32 zero = 0;
	struct codes_of_crash codes = {
		.walk = walk,
		.python = bpf_map_lookup_elem(&jl_pythons, &walk->sample.process),
		.told = bpf_map_lookup_elem(&jl_crash_memory, &zero),
		.first = walk->sample.user_frames,
	};

	if (!codes.python || !codes.told || !walk->python_frames)
		return;
	codes.told->sample = walk->sample;
	codes.told->sample.flags = SAMPLE_MEMORY;
	codes.told->sample.user_frames = codes.told->sample.python_frames = 0;
	bpf_loop(TOLD_CODES, tell_code, &codes, 0);
}

/* Of an exception that is being handled, before and in its struct _Unwind_Exception (Itanium C++ ABI, 2.2.1, and the
 * unwind-cxx.h of libstdc++). Exceptions of std::rethrow_exception are dependent: they name the object of another one. */
enum {
	EXCEPTION_WORDS = 512,	/* of the stack that are looked through: those of terminate() and the unwinder are within */
	EXCEPTION_HEADER = 112,	/* from the type of an exception to its object */
	EXCEPTION_TYPE = -80,	/* or, of a dependent one, the object */
	EXCEPTION_HANDLERS = -40,
	EXCEPTION_OBJECT = 32,
	EXCEPTION_MOST_HANDLERS = 1000,
};
#define EXCEPTION_CLASS 0x474e5543432b2b00ULL	/* "GNUCC++" and 0; 1 of a dependent one */

struct exception_search { u64 stack; u64 exception; };

/* std::terminate() begins to handle what is not caught, and so did whoever catches it. One that is over has no handler. */
static long is_exception(u32 index, struct exception_search *search)
{
	u64 at = word_at(search->stack + index * sizeof(u64));
	u32 handlers;

	if (!at || at % 16 || (word_at(at) | 1) != (EXCEPTION_CLASS | 1) ||
	    bpf_probe_read_user(&handlers, sizeof(handlers), (void *)(at + EXCEPTION_HANDLERS)))
		return 0;
	if (!handlers || handlers > EXCEPTION_MOST_HANDLERS)
		return 0;
	search->exception = at;
	return 1;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct told_exception);
} jl_crash_thrown SEC(".maps");

/* Tells what is being handled, as the frames of std::terminate() and the unwinder have it: its innermost one. The reader
 * knows by the names of functions whether it has ended the process. */
static __always_inline void tell_exception(struct walk *walk, u64 stack)
{
	u32 zero = 0;
	struct told_exception *told = bpf_map_lookup_elem(&jl_crash_thrown, &zero);
	/* 0, which kernels before 6.7 would take for what the loop leaves (python.bpf.h) */
	struct exception_search search = { stack, *(volatile u16 *)&walk->sample.kernel_frames };
	u64 object, type;

	if (!told)
		return;
	bpf_loop(EXCEPTION_WORDS, is_exception, &search, 0);
	if (!search.exception)
		return;
	object = search.exception + EXCEPTION_OBJECT;
	type = word_at(search.exception + EXCEPTION_TYPE);
	if (word_at(search.exception) != EXCEPTION_CLASS) {
		object = type;
		type = word_at(object - EXCEPTION_HEADER);
	}
	told->sample = walk->sample;
	told->sample.flags = SAMPLE_EXCEPTION;
	told->sample.user_frames = told->sample.python_frames = 0;
	read_exception(&told->exception, object, type);
	bpf_ringbuf_output(&jl_samples, told, sizeof(*told), BPF_RB_NO_WAKEUP);
}

/* The same, and ahead of it the functions of Python and the exception that it is about. */
static __always_inline u64 tell_about(struct walk *walk, struct task_struct *task, void *ctx, int signal)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	u64 size = take_crash_stack(walk, task);

	tell_codes(walk);
	if (signal == SIGABRT && regs && !(walk->flags & SAMPLE_NOT_OURS) && saved_registers(walk, regs))
		tell_exception(walk, walk->sp);
	return size;
}

#endif

SEC("tp_btf/signal_deliver")
int BPF_PROG(CRASH, int signal, struct kernel_siginfo *info, struct k_sigaction *action)
{
	struct task_struct *task = this_task();
	bool is_told = signal == SIGKILL || signal == SIGTERM;
	u32 slot, zero = 0;

	if ((!is_told && !dumps_core(signal)) || action->sa.sa_handler)
		return 0;

	struct profiled *profiled = profiled_of(task, &slot);
	struct slot_counters *count = profiled ? bpf_map_lookup_elem(&jl_counters, &slot) : 0;

	if (!profiled || !count || !MEMBER(task, mm))
		return 0;
	if (is_told && !is_told_to_end(count, task, signal))
		return 0;

	struct walk *walk = bpf_map_lookup_elem(&jl_crash_walk, &zero);
	struct node *node = this_node();
	u64 now = bpf_ktime_get_ns();

	if (!walk || !node)
		return 0;
	if (MEMBER(task, tgid) != count->main_tgid && now - profiled->crashed_ns < CRASH_EVERY_NS)
		return 0;
	profiled->crashed_ns = now;
	describe(&walk->sample, task, node, profiled->run);
	walk->sample.waited_ns = 0;
	walk->sample.waited_in = signal == SIGKILL ? SIGTERM : signal;
	walk->flags = SAMPLE_CRASH | (is_owners(task, profiled->uid) ? 0 : SAMPLE_NOT_OURS);

	u64 size = tell_about(walk, task, ctx, signal);

	barrier_var(size);
	if (size <= sizeof(walk->sample) + sizeof(walk->frames))
		bpf_ringbuf_output(&jl_samples, &walk->sample, size, BPF_RB_FORCE_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
