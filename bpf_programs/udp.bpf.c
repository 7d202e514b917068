// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* UDP, and DNS in it, for slots at level io.
 *
 * The kernel keeps no totals of a UDP socket, so they are counted call by call, where the kernel (6.3 or later) tells what a
 * send or receive on a socket moved, whichever system call or io_uring it came by. All other sockets leave at once.
 */
#include "slots.bpf.h"

enum { IPPROTO_UDP = 17, AF_INET = 2, AF_INET6 = 10, MSG_PEEK = 2, MSG_ERRQUEUE = 0x2000, DNS = 53 };

#ifdef __TARGET_ARCH_x86
enum { SENDTO = 44, SENDMSG = 46, SENDMMSG = 307 };
#define NUMBER(regs) BPF_CORE_READ(regs, orig_ax)
#define SECOND(regs) BPF_CORE_READ(regs, si)
#define FIFTH(regs) BPF_CORE_READ(regs, r8)
#else
enum { SENDTO = 206, SENDMSG = 211, SENDMMSG = 269 };
#define NUMBER(regs) BPF_CORE_READ(regs, syscallno)
#define SECOND(regs) BPF_CORE_READ(regs, regs[1])
#define FIFTH(regs) BPF_CORE_READ(regs, regs[4])
#endif

/* Sockets without a fixed peer that sent to port 53 last: what they receive are answers. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);	/* the socket's cookie, which is never used twice */
	__type(value, u8);
} dns_askers SEC(".maps");

static __always_inline struct slot_counters *counters_of(struct sock *sk)
{
	u16 family = sk->__sk_common.skc_family;

	if (sk->sk_protocol != IPPROTO_UDP || (family != AF_INET && family != AF_INET6))
		return 0;

	u32 slot = slot_of(sock_cgroup(sk));
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&counters, &slot);

	return count && count->level >= LEVEL_IO ? count : 0;
}

/* The port that a send on a socket without a fixed peer names; 0 where it can't be told (io_uring). Of several messages
 * in one call: that of the first. */
static __always_inline u16 named_port(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u64 number = NUMBER(regs), name = 0;
	__be16 head[2] = {};	/* of a sockaddr: family and port */

	if (number == SENDTO)
		name = FIFTH(regs);
	else if (number == SENDMSG || number == SENDMMSG)
		bpf_probe_read_user(&name, sizeof(name), (void *)SECOND(regs));
	if (name)
		bpf_probe_read_user(head, sizeof(head), (void *)name);
	return bpf_ntohs(head[1]);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(udp_sent, struct sock *sk, int result, int flags)
{
	struct slot_counters *count = result < 0 ? 0 : counters_of(sk);

	if (!count)
		return 0;
	ADD(count->udp_sent_bytes, result);
	ADD(count->udp_sends, 1);

	u16 port = bpf_ntohs(sk->__sk_common.skc_dport);

	if (port) {
		if (port == DNS)
			ADD(count->dns_queries, 1);
		return 0;
	}

	u64 cookie = bpf_get_socket_cookie(sk);
	u8 one = 1;

	if (named_port() == DNS) {
		ADD(count->dns_queries, 1);
		bpf_map_update_elem(&dns_askers, &cookie, &one, BPF_ANY);
	} else {
		bpf_map_delete_elem(&dns_askers, &cookie);
	}
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(udp_received, struct sock *sk, int result, int flags)
{
	struct slot_counters *count = result < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) ? 0 : counters_of(sk);

	if (!count)
		return 0;
	ADD(count->udp_received_bytes, result);
	ADD(count->udp_receives, 1);

	u16 port = bpf_ntohs(sk->__sk_common.skc_dport);
	u64 cookie = bpf_get_socket_cookie(sk);

	if (port == DNS || (!port && bpf_map_lookup_elem(&dns_askers, &cookie)))
		ADD(count->dns_answers, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
