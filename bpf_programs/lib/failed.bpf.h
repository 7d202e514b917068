/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Which errors of calls can be why a process ends, and what is kept of one. */
#ifndef JOBLENS_FAILED_BPF_H
#define JOBLENS_FAILED_BPF_H

#include "slots.bpf.h"

enum {
	EPERM = 1, ENOENT = 2, EIO = 5, ENOEXEC = 8, EAGAIN = 11, ENOMEM = 12, EACCES = 13, EEXIST = 17, ENOTDIR = 20,
	EISDIR = 21, ENFILE = 23, EMFILE = 24, ETXTBSY = 26, EFBIG = 27, ENOSPC = 28, EROFS = 30, ENAMETOOLONG = 36,
	ELOOP = 40, ENETUNREACH = 101, ENOTCONN = 107, EHOSTUNREACH = 113, ESTALE = 116, EUCLEAN = 117, EREMOTEIO = 121,
	EDQUOT = 122,
};
enum { RLIMIT_FSIZE = 1, RLIMIT_DATA = 2, RLIMIT_NPROC = 6, RLIMIT_NOFILE = 7, RLIMIT_MEMLOCK = 8, RLIMIT_AS = 9 };

#define ERRORS_BELOW_64(number) (1ULL << (number))
#define ERRORS_ABOVE_64(number) (1ULL << ((number) - 64))

/* Errors that sound programs meet all the time, about files that they look for in many places. */
static const u64 common_errors =
	ERRORS_BELOW_64(EPERM) | ERRORS_BELOW_64(ENOENT) | ERRORS_BELOW_64(ENOEXEC) | ERRORS_BELOW_64(EACCES) |
	ERRORS_BELOW_64(EEXIST) | ERRORS_BELOW_64(ENOTDIR) | ERRORS_BELOW_64(EISDIR) | ERRORS_BELOW_64(ETXTBSY) |
	ERRORS_BELOW_64(EROFS) | ERRORS_BELOW_64(ENAMETOOLONG) | ERRORS_BELOW_64(ELOOP);
/* Those that they don't. */
static const u64 rare_errors =
	ERRORS_BELOW_64(EIO) | ERRORS_BELOW_64(EAGAIN) | ERRORS_BELOW_64(ENOMEM) | ERRORS_BELOW_64(ENFILE) |
	ERRORS_BELOW_64(EMFILE) | ERRORS_BELOW_64(EFBIG) | ERRORS_BELOW_64(ENOSPC);
static const u64 rare_errors_above =
	ERRORS_ABOVE_64(ENETUNREACH) | ERRORS_ABOVE_64(ENOTCONN) | ERRORS_ABOVE_64(EHOSTUNREACH) |
	ERRORS_ABOVE_64(ESTALE) | ERRORS_ABOVE_64(EUCLEAN) | ERRORS_ABOVE_64(EREMOTEIO) | ERRORS_ABOVE_64(EDQUOT);

static __always_inline bool is_common(u32 error)
{
	return error < 64 && common_errors >> error & 1;
}

static __always_inline bool is_rare(u32 error)
{
	if (error < 64)
		return rare_errors >> error & 1;
	return error < 128 && rare_errors_above >> (error - 64) & 1;
}

/* Message catalogues are what programs look for before they say what has failed: that is no failure of its own. */
static __always_inline bool is_catalogue(const char *path, u32 length)
{
	u32 end = 0;

	if (length >= sizeof(end))
		bpf_probe_read_kernel(&end, sizeof(end), path + (length - sizeof(end) & (FAILURE_PATH_BYTES - 1)));
	return end == ('.' | 'm' << 8 | 'o' << 16);
}

static __always_inline bool keep_limit(struct failed_call *to, struct task_struct *task, u32 subject, u32 which, u64 asked)
{
	struct rlimit *limits = (void *)BPF_CORE_READ(task, signal) + bpf_core_field_offset(struct signal_struct, rlim);

	bpf_probe_read_kernel(&to->limit, sizeof(to->limit), &limits[which].rlim_cur);
	to->subject = subject;
	to->asked = asked;
	to->held = BPF_CORE_READ(task, mm, total_vm);
	to->bytes = 0;
	return true;
}

#endif
