/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Made by syscalls.py: change that, and make it again. Classes and errors are as in classes.py. */
#ifndef JOBLENS_SYSCALLS_H
#define JOBLENS_SYSCALLS_H

enum { CALL_OTHER = 10, ERROR_OTHER = 30, ERROR_EINTR = 2 };
#define CALL(class, kind) ((class) << 4 | (kind))

#if defined(__TARGET_ARCH_x86)
#define NUMBER_WRITE 1
#define NUMBER_WRITEV 20
#define NUMBER_MMAP 9
#define NUMBER_MREMAP 25
#define NUMBER_CONNECT 42
#define NUMBER_GETSOCKOPT 55
#define NUMBER_EXECVE 59
#define NUMBER_FCNTL 72
#define NUMBER_FLOCK 73
#define NUMBER_READ 0
#define NUMBER_PREAD64 17
#define NUMBER_READV 19
#define NUMBER_PREADV 295
#define NUMBER_PREADV2 327
#define NUMBER_SENDFILE 40
#define NUMBER_SPLICE 275
#define NUMBER_COPY_FILE_RANGE 326
#define NUMBER_READAHEAD 187
#define NUMBER_FADVISE64 221
#define NUMBER_IO_SUBMIT 209
#define NUMBER_IO_URING_ENTER 426
#define CALLS_OF_ARCHITECTURE \
	[0] = CALL(0, READS),	/* read */ \
	[1] = CALL(1, WRITES),	/* write */ \
	[2] = CALL(2, OPENS),	/* open */ \
	[3] = CALL(2, NONE),	/* close */ \
	[4] = CALL(3, PATH),	/* stat */ \
	[5] = CALL(3, FD),	/* fstat */ \
	[6] = CALL(3, PATH),	/* lstat */ \
	[7] = CALL(9, NONE),	/* poll */ \
	[8] = CALL(3, FD),	/* lseek */ \
	[9] = CALL(6, NONE),	/* mmap */ \
	[10] = CALL(6, NONE),	/* mprotect */ \
	[11] = CALL(6, NONE),	/* munmap */ \
	[12] = CALL(6, NONE),	/* brk */ \
	[13] = CALL(8, NONE),	/* rt_sigaction */ \
	[14] = CALL(8, NONE),	/* rt_sigprocmask */ \
	[15] = CALL(8, NONE),	/* rt_sigreturn */ \
	[17] = CALL(0, READS),	/* pread64 */ \
	[18] = CALL(1, WRITES),	/* pwrite64 */ \
	[19] = CALL(0, READS),	/* readv */ \
	[20] = CALL(1, WRITES),	/* writev */ \
	[21] = CALL(3, PATH),	/* access */ \
	[23] = CALL(9, NONE),	/* select */ \
	[24] = CALL(9, NONE),	/* sched_yield */ \
	[25] = CALL(6, NONE),	/* mremap */ \
	[26] = CALL(5, NONE),	/* msync */ \
	[27] = CALL(6, NONE),	/* mincore */ \
	[28] = CALL(6, NONE),	/* madvise */ \
	[29] = CALL(6, NONE),	/* shmget */ \
	[30] = CALL(6, NONE),	/* shmat */ \
	[31] = CALL(6, NONE),	/* shmctl */ \
	[32] = CALL(2, NONE),	/* dup */ \
	[33] = CALL(2, NONE),	/* dup2 */ \
	[34] = CALL(9, NONE),	/* pause */ \
	[35] = CALL(9, NONE),	/* nanosleep */ \
	[39] = CALL(8, NONE),	/* getpid */ \
	[40] = CALL(1, COPIES),	/* sendfile */ \
	[41] = CALL(7, NONE),	/* socket */ \
	[42] = CALL(7, SOCKET),	/* connect */ \
	[43] = CALL(7, SOCKET),	/* accept */ \
	[44] = CALL(7, SENDS),	/* sendto */ \
	[45] = CALL(7, SENDS),	/* recvfrom */ \
	[46] = CALL(7, SENDS),	/* sendmsg */ \
	[47] = CALL(7, SENDS),	/* recvmsg */ \
	[48] = CALL(7, SOCKET),	/* shutdown */ \
	[49] = CALL(7, SOCKET),	/* bind */ \
	[50] = CALL(7, SOCKET),	/* listen */ \
	[51] = CALL(7, SOCKET),	/* getsockname */ \
	[52] = CALL(7, SOCKET),	/* getpeername */ \
	[53] = CALL(7, NONE),	/* socketpair */ \
	[54] = CALL(7, SOCKET),	/* setsockopt */ \
	[55] = CALL(7, SOCKET),	/* getsockopt */ \
	[56] = CALL(8, FORKS),	/* clone */ \
	[57] = CALL(8, FORKS),	/* fork */ \
	[58] = CALL(8, FORKS),	/* vfork */ \
	[59] = CALL(8, NONE),	/* execve */ \
	[60] = CALL(8, NONE),	/* exit */ \
	[61] = CALL(8, NONE),	/* wait4 */ \
	[62] = CALL(8, NONE),	/* kill */ \
	[65] = CALL(9, NONE),	/* semop */ \
	[67] = CALL(6, NONE),	/* shmdt */ \
	[69] = CALL(9, NONE),	/* msgsnd */ \
	[70] = CALL(9, NONE),	/* msgrcv */ \
	[72] = CALL(2, FD),	/* fcntl */ \
	[73] = CALL(3, FD),	/* flock */ \
	[74] = CALL(5, FD),	/* fsync */ \
	[75] = CALL(5, FD),	/* fdatasync */ \
	[76] = CALL(3, PATH),	/* truncate */ \
	[77] = CALL(3, FD),	/* ftruncate */ \
	[78] = CALL(4, FD),	/* getdents */ \
	[79] = CALL(4, NONE),	/* getcwd */ \
	[80] = CALL(4, PATH),	/* chdir */ \
	[81] = CALL(4, FD),	/* fchdir */ \
	[82] = CALL(4, PATH),	/* rename */ \
	[83] = CALL(4, PATH),	/* mkdir */ \
	[84] = CALL(4, PATH),	/* rmdir */ \
	[85] = CALL(2, OPENS),	/* creat */ \
	[86] = CALL(4, PATH),	/* link */ \
	[87] = CALL(4, PATH),	/* unlink */ \
	[88] = CALL(4, PATH),	/* symlink */ \
	[89] = CALL(3, PATH),	/* readlink */ \
	[90] = CALL(3, PATH),	/* chmod */ \
	[91] = CALL(3, FD),	/* fchmod */ \
	[92] = CALL(3, PATH),	/* chown */ \
	[93] = CALL(3, FD),	/* fchown */ \
	[94] = CALL(3, PATH),	/* lchown */ \
	[95] = CALL(3, NONE),	/* umask */ \
	[97] = CALL(8, NONE),	/* getrlimit */ \
	[98] = CALL(8, NONE),	/* getrusage */ \
	[100] = CALL(8, NONE),	/* times */ \
	[101] = CALL(8, NONE),	/* ptrace */ \
	[102] = CALL(8, NONE),	/* getuid */ \
	[104] = CALL(8, NONE),	/* getgid */ \
	[105] = CALL(8, NONE),	/* setuid */ \
	[106] = CALL(8, NONE),	/* setgid */ \
	[107] = CALL(8, NONE),	/* geteuid */ \
	[108] = CALL(8, NONE),	/* getegid */ \
	[109] = CALL(8, NONE),	/* setpgid */ \
	[110] = CALL(8, NONE),	/* getppid */ \
	[111] = CALL(8, NONE),	/* getpgrp */ \
	[112] = CALL(8, NONE),	/* setsid */ \
	[113] = CALL(8, NONE),	/* setreuid */ \
	[114] = CALL(8, NONE),	/* setregid */ \
	[115] = CALL(8, NONE),	/* getgroups */ \
	[116] = CALL(8, NONE),	/* setgroups */ \
	[117] = CALL(8, NONE),	/* setresuid */ \
	[118] = CALL(8, NONE),	/* getresuid */ \
	[119] = CALL(8, NONE),	/* setresgid */ \
	[120] = CALL(8, NONE),	/* getresgid */ \
	[121] = CALL(8, NONE),	/* getpgid */ \
	[122] = CALL(8, NONE),	/* setfsuid */ \
	[123] = CALL(8, NONE),	/* setfsgid */ \
	[124] = CALL(8, NONE),	/* getsid */ \
	[125] = CALL(8, NONE),	/* capget */ \
	[126] = CALL(8, NONE),	/* capset */ \
	[127] = CALL(8, NONE),	/* rt_sigpending */ \
	[128] = CALL(9, NONE),	/* rt_sigtimedwait */ \
	[129] = CALL(8, NONE),	/* rt_sigqueueinfo */ \
	[130] = CALL(9, NONE),	/* rt_sigsuspend */ \
	[131] = CALL(8, NONE),	/* sigaltstack */ \
	[132] = CALL(3, PATH),	/* utime */ \
	[133] = CALL(4, PATH),	/* mknod */ \
	[135] = CALL(8, NONE),	/* personality */ \
	[136] = CALL(3, NONE),	/* ustat */ \
	[137] = CALL(3, PATH),	/* statfs */ \
	[138] = CALL(3, FD),	/* fstatfs */ \
	[140] = CALL(8, NONE),	/* getpriority */ \
	[141] = CALL(8, NONE),	/* setpriority */ \
	[149] = CALL(6, NONE),	/* mlock */ \
	[150] = CALL(6, NONE),	/* munlock */ \
	[151] = CALL(6, NONE),	/* mlockall */ \
	[152] = CALL(6, NONE),	/* munlockall */ \
	[155] = CALL(4, NONE),	/* pivot_root */ \
	[157] = CALL(8, NONE),	/* prctl */ \
	[158] = CALL(8, NONE),	/* arch_prctl */ \
	[160] = CALL(8, NONE),	/* setrlimit */ \
	[161] = CALL(4, PATH),	/* chroot */ \
	[162] = CALL(5, NONE),	/* sync */ \
	[186] = CALL(8, NONE),	/* gettid */ \
	[187] = CALL(3, FD),	/* readahead */ \
	[188] = CALL(3, PATH),	/* setxattr */ \
	[189] = CALL(3, PATH),	/* lsetxattr */ \
	[190] = CALL(3, FD),	/* fsetxattr */ \
	[191] = CALL(3, PATH),	/* getxattr */ \
	[192] = CALL(3, PATH),	/* lgetxattr */ \
	[193] = CALL(3, FD),	/* fgetxattr */ \
	[194] = CALL(3, PATH),	/* listxattr */ \
	[195] = CALL(3, PATH),	/* llistxattr */ \
	[196] = CALL(3, FD),	/* flistxattr */ \
	[197] = CALL(3, PATH),	/* removexattr */ \
	[198] = CALL(3, PATH),	/* lremovexattr */ \
	[199] = CALL(3, FD),	/* fremovexattr */ \
	[200] = CALL(8, NONE),	/* tkill */ \
	[202] = CALL(9, NONE),	/* futex */ \
	[209] = CALL(10, AIO),	/* io_submit */ \
	[213] = CALL(9, NONE),	/* epoll_create */ \
	[216] = CALL(6, NONE),	/* remap_file_pages */ \
	[217] = CALL(4, FD),	/* getdents64 */ \
	[218] = CALL(8, NONE),	/* set_tid_address */ \
	[219] = CALL(9, NONE),	/* restart_syscall */ \
	[220] = CALL(9, NONE),	/* semtimedop */ \
	[221] = CALL(3, FD),	/* fadvise64 */ \
	[230] = CALL(9, NONE),	/* clock_nanosleep */ \
	[231] = CALL(8, NONE),	/* exit_group */ \
	[232] = CALL(9, NONE),	/* epoll_wait */ \
	[233] = CALL(9, NONE),	/* epoll_ctl */ \
	[234] = CALL(8, NONE),	/* tgkill */ \
	[235] = CALL(3, PATH),	/* utimes */ \
	[237] = CALL(6, NONE),	/* mbind */ \
	[238] = CALL(6, NONE),	/* set_mempolicy */ \
	[239] = CALL(6, NONE),	/* get_mempolicy */ \
	[242] = CALL(9, NONE),	/* mq_timedsend */ \
	[243] = CALL(9, NONE),	/* mq_timedreceive */ \
	[247] = CALL(8, NONE),	/* waitid */ \
	[256] = CALL(6, NONE),	/* migrate_pages */ \
	[257] = CALL(2, OPENS_AT),	/* openat */ \
	[258] = CALL(4, PATH_AT),	/* mkdirat */ \
	[259] = CALL(4, PATH_AT),	/* mknodat */ \
	[260] = CALL(3, PATH_AT),	/* fchownat */ \
	[261] = CALL(3, PATH_AT),	/* futimesat */ \
	[262] = CALL(3, PATH_AT),	/* newfstatat */ \
	[263] = CALL(4, PATH_AT),	/* unlinkat */ \
	[264] = CALL(4, PATH_AT),	/* renameat */ \
	[265] = CALL(4, PATH_AT),	/* linkat */ \
	[266] = CALL(4, PATH_AT),	/* symlinkat */ \
	[267] = CALL(3, PATH_AT),	/* readlinkat */ \
	[268] = CALL(3, PATH_AT),	/* fchmodat */ \
	[269] = CALL(3, PATH_AT),	/* faccessat */ \
	[270] = CALL(9, NONE),	/* pselect6 */ \
	[271] = CALL(9, NONE),	/* ppoll */ \
	[272] = CALL(8, NONE),	/* unshare */ \
	[273] = CALL(8, NONE),	/* set_robust_list */ \
	[274] = CALL(8, NONE),	/* get_robust_list */ \
	[275] = CALL(1, SPLICES),	/* splice */ \
	[276] = CALL(1, FD),	/* tee */ \
	[277] = CALL(5, FD),	/* sync_file_range */ \
	[278] = CALL(1, WRITES),	/* vmsplice */ \
	[279] = CALL(6, NONE),	/* move_pages */ \
	[280] = CALL(3, PATH_AT),	/* utimensat */ \
	[281] = CALL(9, NONE),	/* epoll_pwait */ \
	[285] = CALL(3, FD),	/* fallocate */ \
	[288] = CALL(7, SOCKET),	/* accept4 */ \
	[291] = CALL(9, NONE),	/* epoll_create1 */ \
	[292] = CALL(2, NONE),	/* dup3 */ \
	[295] = CALL(0, READS),	/* preadv */ \
	[296] = CALL(1, WRITES),	/* pwritev */ \
	[297] = CALL(8, NONE),	/* rt_tgsigqueueinfo */ \
	[299] = CALL(7, MESSAGES),	/* recvmmsg */ \
	[302] = CALL(8, NONE),	/* prlimit64 */ \
	[303] = CALL(2, NONE),	/* name_to_handle_at */ \
	[304] = CALL(2, NONE),	/* open_by_handle_at */ \
	[306] = CALL(5, FD),	/* syncfs */ \
	[307] = CALL(7, MESSAGES),	/* sendmmsg */ \
	[308] = CALL(8, NONE),	/* setns */ \
	[310] = CALL(8, NONE),	/* process_vm_readv */ \
	[311] = CALL(8, NONE),	/* process_vm_writev */ \
	[312] = CALL(8, NONE),	/* kcmp */ \
	[316] = CALL(4, PATH_AT),	/* renameat2 */ \
	[319] = CALL(2, NONE),	/* memfd_create */ \
	[322] = CALL(8, NONE),	/* execveat */ \
	[323] = CALL(6, NONE),	/* userfaultfd */ \
	[325] = CALL(6, NONE),	/* mlock2 */ \
	[326] = CALL(1, SPLICES),	/* copy_file_range */ \
	[327] = CALL(0, READS),	/* preadv2 */ \
	[328] = CALL(1, WRITES),	/* pwritev2 */ \
	[329] = CALL(6, NONE),	/* pkey_mprotect */ \
	[330] = CALL(6, NONE),	/* pkey_alloc */ \
	[331] = CALL(6, NONE),	/* pkey_free */ \
	[332] = CALL(3, PATH_AT),	/* statx */ \
	[334] = CALL(8, NONE),	/* rseq */ \
	[424] = CALL(8, NONE),	/* pidfd_send_signal */ \
	[426] = CALL(9, NONE),	/* io_uring_enter */ \
	[428] = CALL(2, NONE),	/* open_tree */ \
	[434] = CALL(8, NONE),	/* pidfd_open */ \
	[435] = CALL(8, FORKS),	/* clone3 */ \
	[436] = CALL(2, NONE),	/* close_range */ \
	[437] = CALL(2, OPENS_AT),	/* openat2 */ \
	[438] = CALL(8, NONE),	/* pidfd_getfd */ \
	[439] = CALL(3, PATH_AT),	/* faccessat2 */ \
	[440] = CALL(6, NONE),	/* process_madvise */ \
	[441] = CALL(9, NONE),	/* epoll_pwait2 */ \
	[447] = CALL(2, NONE),	/* memfd_secret */ \
	[448] = CALL(8, NONE),	/* process_mrelease */ \
	[449] = CALL(9, NONE),	/* futex_waitv */ \
	[450] = CALL(6, NONE),	/* set_mempolicy_home_node */ \
	[451] = CALL(6, NONE),	/* cachestat */ \
	[452] = CALL(3, PATH_AT),	/* fchmodat2 */ \
	[453] = CALL(6, NONE),	/* map_shadow_stack */ \
	[454] = CALL(9, NONE),	/* futex_wake */ \
	[455] = CALL(9, NONE),	/* futex_wait */ \
	[456] = CALL(9, NONE),	/* futex_requeue */ \
	[457] = CALL(3, NONE),	/* statmount */ \
	[458] = CALL(3, NONE),	/* listmount */ \
	[462] = CALL(6, NONE),	/* mseal */

#elif defined(__TARGET_ARCH_arm64)
#define NUMBER_WRITE 64
#define NUMBER_WRITEV 66
#define NUMBER_MMAP 222
#define NUMBER_MREMAP 216
#define NUMBER_CONNECT 203
#define NUMBER_GETSOCKOPT 209
#define NUMBER_EXECVE 221
#define NUMBER_FCNTL 25
#define NUMBER_FLOCK 32
#define NUMBER_READ 63
#define NUMBER_PREAD64 67
#define NUMBER_READV 65
#define NUMBER_PREADV 69
#define NUMBER_PREADV2 286
#define NUMBER_SENDFILE 71
#define NUMBER_SPLICE 76
#define NUMBER_COPY_FILE_RANGE 285
#define NUMBER_READAHEAD 213
#define NUMBER_FADVISE64 223
#define NUMBER_IO_SUBMIT 2
#define NUMBER_IO_URING_ENTER 426
#define CALLS_OF_ARCHITECTURE \
	[2] = CALL(10, AIO),	/* io_submit */ \
	[5] = CALL(3, PATH),	/* setxattr */ \
	[6] = CALL(3, PATH),	/* lsetxattr */ \
	[7] = CALL(3, FD),	/* fsetxattr */ \
	[8] = CALL(3, PATH),	/* getxattr */ \
	[9] = CALL(3, PATH),	/* lgetxattr */ \
	[10] = CALL(3, FD),	/* fgetxattr */ \
	[11] = CALL(3, PATH),	/* listxattr */ \
	[12] = CALL(3, PATH),	/* llistxattr */ \
	[13] = CALL(3, FD),	/* flistxattr */ \
	[14] = CALL(3, PATH),	/* removexattr */ \
	[15] = CALL(3, PATH),	/* lremovexattr */ \
	[16] = CALL(3, FD),	/* fremovexattr */ \
	[17] = CALL(4, NONE),	/* getcwd */ \
	[20] = CALL(9, NONE),	/* epoll_create1 */ \
	[21] = CALL(9, NONE),	/* epoll_ctl */ \
	[22] = CALL(9, NONE),	/* epoll_pwait */ \
	[23] = CALL(2, NONE),	/* dup */ \
	[24] = CALL(2, NONE),	/* dup3 */ \
	[25] = CALL(2, FD),	/* fcntl */ \
	[32] = CALL(3, FD),	/* flock */ \
	[33] = CALL(4, PATH_AT),	/* mknodat */ \
	[34] = CALL(4, PATH_AT),	/* mkdirat */ \
	[35] = CALL(4, PATH_AT),	/* unlinkat */ \
	[36] = CALL(4, PATH_AT),	/* symlinkat */ \
	[37] = CALL(4, PATH_AT),	/* linkat */ \
	[38] = CALL(4, PATH_AT),	/* renameat */ \
	[41] = CALL(4, NONE),	/* pivot_root */ \
	[43] = CALL(3, PATH),	/* statfs */ \
	[44] = CALL(3, FD),	/* fstatfs */ \
	[45] = CALL(3, PATH),	/* truncate */ \
	[46] = CALL(3, FD),	/* ftruncate */ \
	[47] = CALL(3, FD),	/* fallocate */ \
	[48] = CALL(3, PATH_AT),	/* faccessat */ \
	[49] = CALL(4, PATH),	/* chdir */ \
	[50] = CALL(4, FD),	/* fchdir */ \
	[51] = CALL(4, PATH),	/* chroot */ \
	[52] = CALL(3, FD),	/* fchmod */ \
	[53] = CALL(3, PATH_AT),	/* fchmodat */ \
	[54] = CALL(3, PATH_AT),	/* fchownat */ \
	[55] = CALL(3, FD),	/* fchown */ \
	[56] = CALL(2, OPENS_AT),	/* openat */ \
	[57] = CALL(2, NONE),	/* close */ \
	[61] = CALL(4, FD),	/* getdents64 */ \
	[62] = CALL(3, FD),	/* lseek */ \
	[63] = CALL(0, READS),	/* read */ \
	[64] = CALL(1, WRITES),	/* write */ \
	[65] = CALL(0, READS),	/* readv */ \
	[66] = CALL(1, WRITES),	/* writev */ \
	[67] = CALL(0, READS),	/* pread64 */ \
	[68] = CALL(1, WRITES),	/* pwrite64 */ \
	[69] = CALL(0, READS),	/* preadv */ \
	[70] = CALL(1, WRITES),	/* pwritev */ \
	[71] = CALL(1, COPIES),	/* sendfile */ \
	[72] = CALL(9, NONE),	/* pselect6 */ \
	[73] = CALL(9, NONE),	/* ppoll */ \
	[75] = CALL(1, WRITES),	/* vmsplice */ \
	[76] = CALL(1, SPLICES),	/* splice */ \
	[77] = CALL(1, FD),	/* tee */ \
	[78] = CALL(3, PATH_AT),	/* readlinkat */ \
	[79] = CALL(3, PATH_AT),	/* newfstatat */ \
	[80] = CALL(3, FD),	/* fstat */ \
	[81] = CALL(5, NONE),	/* sync */ \
	[82] = CALL(5, FD),	/* fsync */ \
	[83] = CALL(5, FD),	/* fdatasync */ \
	[84] = CALL(5, FD),	/* sync_file_range */ \
	[88] = CALL(3, PATH_AT),	/* utimensat */ \
	[90] = CALL(8, NONE),	/* capget */ \
	[91] = CALL(8, NONE),	/* capset */ \
	[92] = CALL(8, NONE),	/* personality */ \
	[93] = CALL(8, NONE),	/* exit */ \
	[94] = CALL(8, NONE),	/* exit_group */ \
	[95] = CALL(8, NONE),	/* waitid */ \
	[96] = CALL(8, NONE),	/* set_tid_address */ \
	[97] = CALL(8, NONE),	/* unshare */ \
	[98] = CALL(9, NONE),	/* futex */ \
	[99] = CALL(8, NONE),	/* set_robust_list */ \
	[100] = CALL(8, NONE),	/* get_robust_list */ \
	[101] = CALL(9, NONE),	/* nanosleep */ \
	[115] = CALL(9, NONE),	/* clock_nanosleep */ \
	[117] = CALL(8, NONE),	/* ptrace */ \
	[124] = CALL(9, NONE),	/* sched_yield */ \
	[128] = CALL(9, NONE),	/* restart_syscall */ \
	[129] = CALL(8, NONE),	/* kill */ \
	[130] = CALL(8, NONE),	/* tkill */ \
	[131] = CALL(8, NONE),	/* tgkill */ \
	[132] = CALL(8, NONE),	/* sigaltstack */ \
	[133] = CALL(9, NONE),	/* rt_sigsuspend */ \
	[134] = CALL(8, NONE),	/* rt_sigaction */ \
	[135] = CALL(8, NONE),	/* rt_sigprocmask */ \
	[136] = CALL(8, NONE),	/* rt_sigpending */ \
	[137] = CALL(9, NONE),	/* rt_sigtimedwait */ \
	[138] = CALL(8, NONE),	/* rt_sigqueueinfo */ \
	[139] = CALL(8, NONE),	/* rt_sigreturn */ \
	[140] = CALL(8, NONE),	/* setpriority */ \
	[141] = CALL(8, NONE),	/* getpriority */ \
	[143] = CALL(8, NONE),	/* setregid */ \
	[144] = CALL(8, NONE),	/* setgid */ \
	[145] = CALL(8, NONE),	/* setreuid */ \
	[146] = CALL(8, NONE),	/* setuid */ \
	[147] = CALL(8, NONE),	/* setresuid */ \
	[148] = CALL(8, NONE),	/* getresuid */ \
	[149] = CALL(8, NONE),	/* setresgid */ \
	[150] = CALL(8, NONE),	/* getresgid */ \
	[151] = CALL(8, NONE),	/* setfsuid */ \
	[152] = CALL(8, NONE),	/* setfsgid */ \
	[153] = CALL(8, NONE),	/* times */ \
	[154] = CALL(8, NONE),	/* setpgid */ \
	[155] = CALL(8, NONE),	/* getpgid */ \
	[156] = CALL(8, NONE),	/* getsid */ \
	[157] = CALL(8, NONE),	/* setsid */ \
	[158] = CALL(8, NONE),	/* getgroups */ \
	[159] = CALL(8, NONE),	/* setgroups */ \
	[163] = CALL(8, NONE),	/* getrlimit */ \
	[164] = CALL(8, NONE),	/* setrlimit */ \
	[165] = CALL(8, NONE),	/* getrusage */ \
	[166] = CALL(3, NONE),	/* umask */ \
	[167] = CALL(8, NONE),	/* prctl */ \
	[172] = CALL(8, NONE),	/* getpid */ \
	[173] = CALL(8, NONE),	/* getppid */ \
	[174] = CALL(8, NONE),	/* getuid */ \
	[175] = CALL(8, NONE),	/* geteuid */ \
	[176] = CALL(8, NONE),	/* getgid */ \
	[177] = CALL(8, NONE),	/* getegid */ \
	[178] = CALL(8, NONE),	/* gettid */ \
	[182] = CALL(9, NONE),	/* mq_timedsend */ \
	[183] = CALL(9, NONE),	/* mq_timedreceive */ \
	[188] = CALL(9, NONE),	/* msgrcv */ \
	[189] = CALL(9, NONE),	/* msgsnd */ \
	[192] = CALL(9, NONE),	/* semtimedop */ \
	[193] = CALL(9, NONE),	/* semop */ \
	[194] = CALL(6, NONE),	/* shmget */ \
	[195] = CALL(6, NONE),	/* shmctl */ \
	[196] = CALL(6, NONE),	/* shmat */ \
	[197] = CALL(6, NONE),	/* shmdt */ \
	[198] = CALL(7, NONE),	/* socket */ \
	[199] = CALL(7, NONE),	/* socketpair */ \
	[200] = CALL(7, SOCKET),	/* bind */ \
	[201] = CALL(7, SOCKET),	/* listen */ \
	[202] = CALL(7, SOCKET),	/* accept */ \
	[203] = CALL(7, SOCKET),	/* connect */ \
	[204] = CALL(7, SOCKET),	/* getsockname */ \
	[205] = CALL(7, SOCKET),	/* getpeername */ \
	[206] = CALL(7, SENDS),	/* sendto */ \
	[207] = CALL(7, SENDS),	/* recvfrom */ \
	[208] = CALL(7, SOCKET),	/* setsockopt */ \
	[209] = CALL(7, SOCKET),	/* getsockopt */ \
	[210] = CALL(7, SOCKET),	/* shutdown */ \
	[211] = CALL(7, SENDS),	/* sendmsg */ \
	[212] = CALL(7, SENDS),	/* recvmsg */ \
	[213] = CALL(3, FD),	/* readahead */ \
	[214] = CALL(6, NONE),	/* brk */ \
	[215] = CALL(6, NONE),	/* munmap */ \
	[216] = CALL(6, NONE),	/* mremap */ \
	[220] = CALL(8, FORKS),	/* clone */ \
	[221] = CALL(8, NONE),	/* execve */ \
	[222] = CALL(6, NONE),	/* mmap */ \
	[223] = CALL(3, FD),	/* fadvise64 */ \
	[226] = CALL(6, NONE),	/* mprotect */ \
	[227] = CALL(5, NONE),	/* msync */ \
	[228] = CALL(6, NONE),	/* mlock */ \
	[229] = CALL(6, NONE),	/* munlock */ \
	[230] = CALL(6, NONE),	/* mlockall */ \
	[231] = CALL(6, NONE),	/* munlockall */ \
	[232] = CALL(6, NONE),	/* mincore */ \
	[233] = CALL(6, NONE),	/* madvise */ \
	[234] = CALL(6, NONE),	/* remap_file_pages */ \
	[235] = CALL(6, NONE),	/* mbind */ \
	[236] = CALL(6, NONE),	/* get_mempolicy */ \
	[237] = CALL(6, NONE),	/* set_mempolicy */ \
	[238] = CALL(6, NONE),	/* migrate_pages */ \
	[239] = CALL(6, NONE),	/* move_pages */ \
	[240] = CALL(8, NONE),	/* rt_tgsigqueueinfo */ \
	[242] = CALL(7, SOCKET),	/* accept4 */ \
	[243] = CALL(7, MESSAGES),	/* recvmmsg */ \
	[260] = CALL(8, NONE),	/* wait4 */ \
	[261] = CALL(8, NONE),	/* prlimit64 */ \
	[264] = CALL(2, NONE),	/* name_to_handle_at */ \
	[265] = CALL(2, NONE),	/* open_by_handle_at */ \
	[267] = CALL(5, FD),	/* syncfs */ \
	[268] = CALL(8, NONE),	/* setns */ \
	[269] = CALL(7, MESSAGES),	/* sendmmsg */ \
	[270] = CALL(8, NONE),	/* process_vm_readv */ \
	[271] = CALL(8, NONE),	/* process_vm_writev */ \
	[272] = CALL(8, NONE),	/* kcmp */ \
	[276] = CALL(4, PATH_AT),	/* renameat2 */ \
	[279] = CALL(2, NONE),	/* memfd_create */ \
	[281] = CALL(8, NONE),	/* execveat */ \
	[282] = CALL(6, NONE),	/* userfaultfd */ \
	[284] = CALL(6, NONE),	/* mlock2 */ \
	[285] = CALL(1, SPLICES),	/* copy_file_range */ \
	[286] = CALL(0, READS),	/* preadv2 */ \
	[287] = CALL(1, WRITES),	/* pwritev2 */ \
	[288] = CALL(6, NONE),	/* pkey_mprotect */ \
	[289] = CALL(6, NONE),	/* pkey_alloc */ \
	[290] = CALL(6, NONE),	/* pkey_free */ \
	[291] = CALL(3, PATH_AT),	/* statx */ \
	[293] = CALL(8, NONE),	/* rseq */ \
	[424] = CALL(8, NONE),	/* pidfd_send_signal */ \
	[426] = CALL(9, NONE),	/* io_uring_enter */ \
	[428] = CALL(2, NONE),	/* open_tree */ \
	[434] = CALL(8, NONE),	/* pidfd_open */ \
	[435] = CALL(8, FORKS),	/* clone3 */ \
	[436] = CALL(2, NONE),	/* close_range */ \
	[437] = CALL(2, OPENS_AT),	/* openat2 */ \
	[438] = CALL(8, NONE),	/* pidfd_getfd */ \
	[439] = CALL(3, PATH_AT),	/* faccessat2 */ \
	[440] = CALL(6, NONE),	/* process_madvise */ \
	[441] = CALL(9, NONE),	/* epoll_pwait2 */ \
	[447] = CALL(2, NONE),	/* memfd_secret */ \
	[448] = CALL(8, NONE),	/* process_mrelease */ \
	[449] = CALL(9, NONE),	/* futex_waitv */ \
	[450] = CALL(6, NONE),	/* set_mempolicy_home_node */ \
	[451] = CALL(6, NONE),	/* cachestat */ \
	[452] = CALL(3, PATH_AT),	/* fchmodat2 */ \
	[453] = CALL(6, NONE),	/* map_shadow_stack */ \
	[454] = CALL(9, NONE),	/* futex_wake */ \
	[455] = CALL(9, NONE),	/* futex_wait */ \
	[456] = CALL(9, NONE),	/* futex_requeue */ \
	[457] = CALL(3, NONE),	/* statmount */ \
	[458] = CALL(3, NONE),	/* listmount */ \
	[462] = CALL(6, NONE),	/* mseal */

#else
#error "no table of system calls for this architecture"
#endif

#define ERRORS_BY_NUMBER \
	[1] = 0,	/* EPERM */ \
	[2] = 1,	/* ENOENT */ \
	[4] = 2,	/* EINTR */ \
	[5] = 3,	/* EIO */ \
	[11] = 4,	/* EAGAIN */ \
	[12] = 5,	/* ENOMEM */ \
	[13] = 6,	/* EACCES */ \
	[16] = 7,	/* EBUSY */ \
	[17] = 8,	/* EEXIST */ \
	[18] = 9,	/* EXDEV */ \
	[19] = 10,	/* ENODEV */ \
	[20] = 11,	/* ENOTDIR */ \
	[21] = 12,	/* EISDIR */ \
	[22] = 13,	/* EINVAL */ \
	[23] = 14,	/* ENFILE */ \
	[24] = 15,	/* EMFILE */ \
	[27] = 16,	/* EFBIG */ \
	[28] = 17,	/* ENOSPC */ \
	[30] = 18,	/* EROFS */ \
	[32] = 19,	/* EPIPE */ \
	[40] = 20,	/* ELOOP */ \
	[36] = 21,	/* ENAMETOOLONG */ \
	[101] = 22,	/* ENETUNREACH */ \
	[104] = 23,	/* ECONNRESET */ \
	[107] = 24,	/* ENOTCONN */ \
	[110] = 25,	/* ETIMEDOUT */ \
	[111] = 26,	/* ECONNREFUSED */ \
	[113] = 27,	/* EHOSTUNREACH */ \
	[116] = 28,	/* ESTALE */ \
	[122] = 29,	/* EDQUOT */

#endif
