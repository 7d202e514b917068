// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* UDP, and DNS in it, for slots at level io.
 *
 * The kernel keeps no totals of a UDP socket, so they are counted call by call: where the kernel (6.3 or later) tells what a
 * send or receive on a socket moved, whichever system call or io_uring it came by; before, at the end of the calls
 * that are for sockets alone. All other sockets leave at once.
 */
#define REGISTER(regs, member) ((regs)->member)	/* the kernel knows their type, wherever they come from */
#include "io.bpf.h"

enum { IPPROTO_UDP = 17, AF_INET = 2, AF_INET6 = 10, MSG_PEEK = 2, MSG_ERRQUEUE = 0x2000, DNS = 53 };

#if defined(__TARGET_ARCH_x86)
enum { SENDTO = 44, RECVFROM, SENDMSG, RECVMSG, SENDMMSG = 307, RECVMMSG = 299 };
#elif defined(__TARGET_ARCH_arm64)
enum { SENDTO = 206, RECVFROM, SENDMSG = 211, RECVMSG, SENDMMSG = 269, RECVMMSG = 243 };
#endif

/* Sockets without a fixed peer that sent to port 53 last: what they receive are answers. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);	/* something of the socket's that is not soon another's */
	__type(value, u8);
} jl_dns_askers SEC(".maps");

/* The counters of whoever owns a UDP socket, if that is a slot at level io. */
static __always_inline struct slot_counters *counters_of(struct sock *sk)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP || (family != AF_INET && family != AF_INET6))
		return 0;

	u32 slot = slot_of(sock_cgroup(sk));
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	return count && count->level >= LEVEL_IO ? count : 0;
}

/* The port that a send on a socket without a fixed peer names; 0 where it can't be told (io_uring). Of several messages
 * in one call: that of the first. */
static __always_inline u16 named_port(struct pt_regs *regs)
{
	u64 number = CALL_NUMBER(regs), name = 0;
	__be16 head[2] = {};	/* of a sockaddr: family and port */

	if (number == SENDTO)
		name = ARGUMENT_4(regs);
	else if (number == SENDMSG || number == SENDMMSG)
		bpf_probe_read_user(&name, sizeof(name), (void *)ARGUMENT_1(regs));
	if (name)
		bpf_probe_read_user(head, sizeof(head), (void *)name);
	return bpf_ntohs(head[1]);
}

/* `named`: the port that the call names, where the socket has no fixed peer. */
static __always_inline void sent(struct slot_counters *count, u64 bytes, u64 messages, u16 peer, u16 named, u64 socket)
{
	u8 one = 1;

	ADD(count->udp_sent_bytes, bytes);
	ADD(count->udp_sends, messages);
	if (peer == DNS || (!peer && named == DNS))
		ADD(count->dns_queries, messages);
	if (peer)
		return;
	if (named == DNS)
		bpf_map_update_elem(&jl_dns_askers, &socket, &one, BPF_ANY);
	else
		bpf_map_delete_elem(&jl_dns_askers, &socket);
}

static __always_inline void received(struct slot_counters *count, u64 bytes, u64 messages, u16 peer, u64 socket)
{
	ADD(count->udp_received_bytes, bytes);
	ADD(count->udp_receives, messages);
	if (peer == DNS || (!peer && bpf_map_lookup_elem(&jl_dns_askers, &socket)))
		ADD(count->dns_answers, messages);
}

static __always_inline u16 peer_port(struct sock *sk)
{
	return bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
}

/* Whether this is certainly somebody else's socket: the kernel comes by here with every one. */
static __always_inline bool is_other(struct sock *sk)
{
	return sk->sk_protocol != IPPROTO_UDP;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(jl_udp_send, struct sock *sk, int result, int flags)
{
	struct slot_counters *count = result < 0 || is_other(sk) ? 0 : counters_of(sk);

	if (!count)
		return 0;

	u16 peer = peer_port(sk);
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	sent(count, result, 1, peer, peer ? 0 : named_port(regs), bpf_get_socket_cookie(sk));
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(jl_udp_recv, struct sock *sk, int result, int flags)
{
	struct slot_counters *count = result < 0 || is_other(sk) || flags & (MSG_PEEK | MSG_ERRQUEUE) ? 0 : counters_of(sk);

	if (count)
		received(count, result, 1, peer_port(sk), bpf_get_socket_cookie(sk));
	return 0;
}

/* --- Before 6.3 --- */

enum { MESSAGES_READ = 64, MMSGHDR_BYTES = 64, MSG_LEN_AT = 56 };

/* What the messages of one sendmmsg or recvmmsg have moved, as the kernel has noted it for the caller. */
static __always_inline u64 bytes_of_messages(u64 vector, u64 messages)
{
	u64 bytes = 0;

	for (u32 i = 0; i < MESSAGES_READ; i++) {
		u32 length = 0;

		if (i >= messages)
			break;
		bpf_probe_read_user(&length, sizeof(length), (void *)(vector + i * MMSGHDR_BYTES + MSG_LEN_AT));
		bytes += length;
	}
	return bytes;
}

static __always_inline struct file *file_of(struct task_struct *task, u32 descriptor)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = 0;

	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	return file;
}

/* True where the thread that runs here is known to be nobody's at level io. */
static __always_inline bool is_nobodys(u64 task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);

	return running && running->task == task && !running->index;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(jl_udp_sys_exit, struct pt_regs *regs, long result)
{
	u64 number = CALL_NUMBER(regs), task = bpf_get_current_task();
	bool sends = number == SENDTO || number == SENDMSG || number == SENDMMSG;
	bool receives = number == RECVFROM || number == RECVMSG || number == RECVMMSG;

	if (!(sends || receives) || result < 0 || is_nobodys(task) || IS_32_BIT(regs))
		return 0;
	if (receives && (number == RECVMSG ? ARGUMENT_2(regs) : ARGUMENT_3(regs)) & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;

	/* a call that went well was about a socket */
	struct file *file = file_of((struct task_struct *)task, ARGUMENT_0(regs));
	struct socket *socket = file ? BPF_CORE_READ(file, private_data) : 0;
	struct sock *sk = socket ? BPF_CORE_READ(socket, sk) : 0;
	struct slot_counters *count = sk ? counters_of(sk) : 0;

	if (!count)
		return 0;

	u16 peer = peer_port(sk);
	u64 inode = BPF_CORE_READ(file, f_inode, i_ino), bytes = result, messages = 1;

	if (number == SENDMMSG || number == RECVMMSG) {
		messages = result;
		bytes = bytes_of_messages(ARGUMENT_1(regs), messages);
	}
	if (sends)
		sent(count, bytes, messages, peer, peer ? 0 : named_port(regs), inode);
	else
		received(count, bytes, messages, peer, inode);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
