/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What has failed lately for a process, with its path, and what it has said of it: for whoever asks why it ended.
 *
 * Nothing of this is on the way of a call that succeeds, but for writes to descriptor 2, and of those only the next ones
 * after a failure are looked at. Each job has room of its own for some processes, so that one costs no other. A process
 * that ends well gives its place back. If there is none, that loses its place for which nothing has failed for longer.
 *
 * Two threads of one process that fail at the same moment can mix two entries. So whoever reads them believes none of
 * which the process has not spoken, or that is not rare.
 */
#ifndef JOBLENS_FAILURES_BPF_H
#define JOBLENS_FAILURES_BPF_H

#include "failed.bpf.h"
#include "running.bpf.h"

MAPPED_ARRAY(jl_io_failing, struct io_failing);	/* rows */
MAPPED_ARRAY(jl_io_failed, struct io_failures);	/* rows × FAILING */

enum { STDERR = 2, PIECES = 12, PIECE_BYTES = 256, COMPONENT_BYTES = 128, COMPONENTS = 16, ADDRESS_BYTES = 28 };

/* Where a process of the job is kept, at one of two places; FAILING where it is not. `claim`: at the one that is free,
 * or where nothing has failed for longer. */
static __always_inline u32 place_of(struct io_failing *failing, u32 tgid, const bool claim)
{
	u32 one = tgid & (FAILING - 1), other = one + 1 + (tgid * 0x9e3779b1 >> 7) % (FAILING - 1) & (FAILING - 1);

	if (failing->tgid[one] == tgid)
		return one;
	if (failing->tgid[other] == tgid)
		return other;
	if (!claim)
		return FAILING;
	return failing->last_ns[one] <= failing->last_ns[other] ? one : other;
}

static __always_inline struct io_failures *failures_of(u32 row, u32 place)
{
	u32 index = row * FAILING + place;

	return place < FAILING ? bpf_map_lookup_elem(&jl_io_failed, &index) : 0;
}

/* Where an open file is, from the root of the process, innermost name first: each with its NUL, and "/" where a mount
 * begins. How far it is lies in memory, where the verifier does not follow it: it would follow every way to each length. */
static __always_inline bool name_file(struct failed_call *to, struct task_struct *task, struct file *file)
{
	struct dentry *root = BPF_CORE_READ(task, fs, root.dentry), *dentry = BPF_CORE_READ(file, f_path.dentry);
	struct vfsmount *root_mount = BPF_CORE_READ(task, fs, root.mnt), *mount = BPF_CORE_READ(file, f_path.mnt);
	u32 offset = bpf_core_field_offset(struct mount, mnt);

	to->bytes = 0;
	for (int i = 0; i < COMPONENTS; i++) {
		struct mount *whole = (void *)mount - offset, *above;
		bool begins = dentry == BPF_CORE_READ(mount, mnt_root);
		u64 at = *(volatile u32 *)&to->bytes;
		long length;

		if (at > FAILURE_PATH_BYTES - COMPONENT_BYTES || !dentry || (dentry == root && mount == root_mount))
			break;
		if (begins) {
			above = BPF_CORE_READ(whole, mnt_parent);
			if (above == whole)
				break;
			dentry = BPF_CORE_READ(whole, mnt_mountpoint);
			mount = (void *)above + offset;
			to->path[at] = '/';
			to->path[at + 1] = 0;
			length = 2;
		} else {
			const unsigned char *name = BPF_CORE_READ(dentry, d_name.name);

			dentry = BPF_CORE_READ(dentry, d_parent);
			length = bpf_probe_read_kernel_str(to->path + at, COMPONENT_BYTES, name);
		}
		if (length <= 0)
			break;
		*(volatile u32 *)&to->bytes = at + length;
	}
	return to->bytes;
}

static __always_inline struct file *file_of(struct task_struct *task, u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = 0;

	if (table && fd < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

/* False where it is none that anybody would miss: pipes, sockets and terminals have errors of their own. */
static __always_inline bool keep_file(struct failed_call *to, struct task_struct *task, u32 fd)
{
	struct file *file = file_of(task, fd);
	u32 mode = file ? BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT : S_IFSOCK;

	if (mode == S_IFSOCK || mode == S_IFIFO)
		return false;
	if (mode == S_IFCHR && is_terminal(BPF_CORE_READ(file, f_inode, i_rdev)))
		return false;
	to->subject = mode == S_IFCHR ? FAILED_DEVICE : FAILED_FILE;
	return name_file(to, task, file);
}

static __always_inline bool keep_path(struct failed_call *to, u64 path)
{
	long length = bpf_probe_read_user_str(to->path, FAILURE_PATH_BYTES, (void *)path);

	if (length <= 1 || length > FAILURE_PATH_BYTES || is_catalogue(to->path, length))
		return false;
	to->subject = FAILED_PATH;
	to->bytes = length - 1;
	return true;
}

static __always_inline bool keep_address(struct failed_call *to, u64 address)
{
	to->subject = FAILED_ADDRESS;
	to->bytes = ADDRESS_BYTES;
	return !bpf_probe_read_user(to->path, ADDRESS_BYTES, (void *)address);
}

/* Whether the failure of a call can be why a process ends. */
static __always_inline bool tells(u64 number, u32 kind, u32 error)
{
	if (!is_common(error) && !is_rare(error))
		return false;
	if (error == EMFILE || error == ENFILE)
		return true;
	switch (kind) {
	case NONE:
		return number == NUMBER_EXECVE ||
		       (error == ENOMEM && (number == NUMBER_MMAP || number == NUMBER_MREMAP));
	case SOCKET:
		return number == NUMBER_CONNECT && (error == ENETUNREACH || error == EHOSTUNREACH);
	case FORKS:
		return error == EAGAIN;
	case SENDS:
	case MESSAGES:
	case AIO:
		return false;
	}
	return error != EAGAIN;
}

/* What such a call was about; false where that tells nothing. */
static __always_inline bool keep_subject(struct failed_call *to, struct task_struct *task, struct pt_regs *regs,
					 u32 kind, u32 error)
{
	u64 number = CALL_NUMBER(regs);
	u64 asked = number == NUMBER_MMAP ? ARGUMENT_1(regs) : ARGUMENT_2(regs);
	u64 path = kind == OPENS_AT || kind == PATH_AT ? ARGUMENT_1(regs) : ARGUMENT_0(regs);

	if (error == EMFILE || error == ENFILE)
		return keep_limit(to, task, FAILED_DESCRIPTORS, RLIMIT_NOFILE, 0);
	if (kind == FORKS)
		return keep_limit(to, task, FAILED_PROCESSES, RLIMIT_NPROC, 0);
	if (kind == SOCKET)
		return keep_address(to, ARGUMENT_1(regs));
	if (kind == NONE && number != NUMBER_EXECVE)
		return keep_limit(to, task, FAILED_MEMORY, RLIMIT_AS, asked);
	if ((kind != NONE && kind <= SPLICES) || kind == FD)
		return keep_file(to, task, kind == SPLICES ? ARGUMENT_2(regs) : ARGUMENT_0(regs));
	return keep_path(to, path);
}

/* How many writes to descriptor 2 are looked at after a failure. */
enum { WRITES_HEARD = 24 };

/* The process's room; of one that has none the room that is free, or has been used for nothing for longer. */
static __always_inline struct io_failures *claim(struct io_failing *failing, u32 row, u32 tgid, u32 *place)
{
	struct io_failures *failures;

	*place = place_of(failing, tgid, true);
	failures = failures_of(row, *place);
	if (failures && failing->tgid[*place & (FAILING - 1)] != tgid) {
		failures->common_count = failures->rare_count = failures->said_bytes = failures->writes_left = 0;
		failing->last_ns[*place & (FAILING - 1)] = bpf_ktime_get_ns();
		failing->tgid[*place & (FAILING - 1)] = tgid;
	}
	return failures;
}

static __noinline int keep_failure(struct task_struct *task, struct pt_regs *regs, u32 row, u32 kind, u32 error)
{
	bool common = is_common(error);
	struct io_failing *failing = bpf_map_lookup_elem(&jl_io_failing, &row);
	u32 tgid = BPF_CORE_READ(task, tgid);

	if (!failing)
		return 0;

	u32 place;
	struct io_failures *failures = claim(failing, row, tgid, &place);

	if (!failures)
		return 0;

	u64 index = common ? failures->common_count % COMMON_FAILURES :
			     COMMON_FAILURES + failures->rare_count % (FAILURES - COMMON_FAILURES);

	barrier_var(index);	/* for the verifier: one way from here on, not two */

	struct failed_call *failure = &failures->last[index & (FAILURES - 1)];

	if (!keep_subject(failure, task, regs, kind, error))
		return 0;
	failure->error = error;
	failure->time_ns = bpf_ktime_get_ns();
	failures->writes_left = WRITES_HEARD;
	failing->last_ns[place & (FAILING - 1)] = failure->time_ns;
	if (common)
		failures->common_count++;
	else
		failures->rare_count++;
	return 0;
}

/* The last of what the process has said: once its room is full, the older half of it goes. */
static __always_inline void hear_piece(struct io_failures *failures, u64 address, u64 size)
{
	u64 at = failures->said_bytes;

	if (at > SAID_BYTES - PIECE_BYTES) {
		bpf_probe_read_kernel(failures->said, SAID_BYTES - PIECE_BYTES, failures->said + PIECE_BYTES);
		at -= PIECE_BYTES;
	}
	if (size > PIECE_BYTES) {
		address += size - PIECE_BYTES;
		size = PIECE_BYTES;
	}
	/* for the verifier, which loses their bounds */
	barrier_var(at);
	barrier_var(size);
	if (at > SAID_BYTES - PIECE_BYTES || size > PIECE_BYTES)
		return;
	if (!bpf_probe_read_user(failures->said + at, size, (void *)address))
		failures->said_bytes = at + size;
}

/* Whether it is a shell's word that there is no such command. The shell has looked for it, and a child of its says so that
 * has failed at nothing itself. */
static __always_inline bool says_not_found(u64 number, u64 address, u64 written)
{
	u64 end = 0;

	if (number != NUMBER_WRITE || written <= sizeof(end))
		return false;
	bpf_probe_read_user(&end, sizeof(end), (void *)(address + written - sizeof(end)));
	return end == 0x0a646e756f662074;	/* "t found\n" */
}

/* A process that has something to say writes it to its descriptor 2. */
static __noinline int hear(struct task_struct *task, struct pt_regs *regs, u32 row, u64 written)
{
	struct io_failing *failing = bpf_map_lookup_elem(&jl_io_failing, &row);
	u32 tgid = BPF_CORE_READ(task, tgid), place = failing ? place_of(failing, tgid, false) : FAILING;
	struct io_failures *failures = failures_of(row, place);
	u64 number = CALL_NUMBER(regs), first = ARGUMENT_1(regs);
	struct { u64 address, size; } piece;

	if (failing && !(failures && failures->writes_left) && says_not_found(number, first, written)) {
		failures = claim(failing, row, tgid, &place);
		if (failures)
			failures->writes_left = WRITES_HEARD;
	}
	if (!failures || !failures->writes_left)
		return 0;
	failures->writes_left--;
	if (number == NUMBER_WRITE) {
		hear_piece(failures, first, written);
	} else if (number == NUMBER_WRITEV) {
		u64 count = ARGUMENT_2(regs);

		for (u32 i = 0; i < PIECES && i < count; i++) {
			if (bpf_probe_read_user(&piece, sizeof(piece), (void *)(first + i * sizeof(piece))))
				break;
			hear_piece(failures, piece.address, piece.size);
		}
	}
	return 0;
}

/* A process ends: one that ends well gives its place back. */
static __always_inline void forget_failures(struct task_struct *task, u32 row)
{
	struct io_failing *failing = bpf_map_lookup_elem(&jl_io_failing, &row);
	u32 place = failing ? place_of(failing, task->tgid, false) : FAILING;

	if (place >= FAILING || exit_code_of(task))
		return;
	failing->tgid[place & (FAILING - 1)] = 0;
	failing->last_ns[place & (FAILING - 1)] = 0;
}

#endif
