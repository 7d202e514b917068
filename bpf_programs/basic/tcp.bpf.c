// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* TCP: what a connection had carried when it closed, and what the open ones carry.
 *
 * The kernel keeps bytes, retransmissions and round-trip time per connection. They are added up once, at the
 * change of state to CLOSE; the iterator `jl_iter_tcp` adds up the connections that live. No program runs on a packet.
 * For slots that are or were at level io they are added to the entry of their remote endpoint besides (endpoints.bpf.h).
 */
#include "slots.bpf.h"
#include "endpoints.bpf.h"

enum { ENETUNREACH = 101, ETIMEDOUT = 110, ECONNREFUSED = 111, EHOSTDOWN = 112, EHOSTUNREACH = 113 };

#include "connectors.bpf.h"

enum {
	TCP_ESTABLISHED = 1, TCP_SYN_SENT, TCP_SYN_RECV, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_TIME_WAIT,
	TCP_CLOSE, TCP_CLOSE_WAIT, TCP_LAST_ACK, TCP_LISTEN, TCP_CLOSING,	/* include/net/tcp_states.h */
	IPPROTO_TCP = 6,
	SOCK_DONE = 1,			/* include/net/sock.h: the peer's FIN has come */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot_living);
} jl_open_tcp SEC(".maps");

struct carried { u64 sent, received, retransmits; u32 rtt_us; };

/* What a connection has carried. bytes_sent counts a byte again when it is sent again, which bytes_retrans takes
 * off; bytes_received counts the peer's FIN as a byte. */
static __always_inline struct carried carried_by(struct tcp_sock *tcp)
{
	u64 received = BPF_CORE_READ(tcp, bytes_received);
	u64 fin = BPF_CORE_READ(tcp, inet_conn.icsk_inet.sk.__sk_common.skc_flags) >> SOCK_DONE & 1;
	struct carried carried = {
		.sent = BPF_CORE_READ(tcp, bytes_sent) - BPF_CORE_READ(tcp, bytes_retrans),
		.received = received > fin ? received - fin : 0,
		.retransmits = BPF_CORE_READ(tcp, total_retrans),
		.rtt_us = BPF_CORE_READ(tcp, srtt_us) >> 3,
	};

	return carried;
}

/* What the connection's programs have written and the kernel has not sent yet: it goes on when they have ended. */
static __always_inline u64 unsent_by(struct tcp_sock *tcp)
{
	u32 queued = BPF_CORE_READ(tcp, write_seq) - BPF_CORE_READ(tcp, snd_nxt);
	u8 state = BPF_CORE_READ(tcp, inet_conn.icsk_inet.sk.__sk_common.skc_state);

	/* our FIN is queued as one more byte */
	if (queued && (state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK))
		queued--;
	return queued;
}

/* Adds it to whichever struct; `open_` or nothing is how its members' names begin. */
#define ADD_CARRIED(to, prefix, carried)							\
	do {											\
		ADD((to)->prefix##sent_bytes, (carried).sent);					\
		ADD((to)->prefix##received_bytes, (carried).received);				\
		ADD((to)->prefix##retransmits, (carried).retransmits);				\
		if ((carried).rtt_us) {								\
			ADD((to)->prefix##rtt_us, (carried).rtt_us);				\
			ADD((to)->prefix##rtt_count, 1);					\
		}										\
	} while (0)

/* The kernel runs no program that is running on this CPU already. Changes of state come from system calls and from
 * packets alike, and a packet interrupts a system call: the one program at this tracepoint would miss its change. So
 * there are two, one after the other. Whichever is first to see a change counts it and leaves a mark for the
 * other; the one in between is missed by at most one of them. */
enum { MARKS = 8 };

struct mark { u64 sk; u64 states; };
struct marks { struct mark mark[MARKS]; u64 next; };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct marks);
} jl_tcp_changes SEC(".maps");

/* True for the first of the two programs that sees this change. */
static __always_inline bool sees_first(u64 sk, u64 states)
{
	u32 zero = 0;
	struct marks *marks = bpf_map_lookup_elem(&jl_tcp_changes, &zero);

	if (!marks)
		return false;
	for (int i = 0; i < MARKS; i++) {
		if (marks->mark[i].sk == sk && marks->mark[i].states == states) {
			marks->mark[i].sk = 0;
			return false;
		}
	}

	struct mark *free = &marks->mark[marks->next++ % MARKS];

	for (int i = 0; i < MARKS; i++) {
		if (!marks->mark[i].sk) {
			free = &marks->mark[i];
			break;
		}
	}
	free->states = states;
	free->sk = sk;
	return true;
}

/* A connection that the slot wanted did not come about; most programs that give one up themselves close the socket,
 * which leaves no error. */
static __always_inline void failed(struct slot_counters *count, const struct sock *sk)
{
	struct endpoint *endpoint = 0;
	int error = BPF_CORE_READ(sk, sk_err);
	struct endpoint_key key = key_of(count, sk, true);

	ADD(count->connect_failed, 1);
	is_unconnected(sk, &key, error);
	if (is_by_endpoint(count))
		endpoint = entry_of(count, &key);
	if (error == ECONNREFUSED) {
		ADD(count->refused, 1);
		if (endpoint)
			ADD(endpoint->refused, 1);
	} else if (error == ETIMEDOUT) {
		ADD(count->timed_out, 1);
		if (endpoint)
			ADD(endpoint->timed_out, 1);
	} else if (error == ENETUNREACH || error == EHOSTUNREACH || error == EHOSTDOWN) {
		ADD(count->unreachable, 1);
		if (endpoint)
			ADD(endpoint->unreachable, 1);
	} else if (endpoint) {
		ADD(endpoint->failed_otherwise, 1);
	}
}

static __always_inline int change(const struct sock *sk, int before, int after)
{
	/* most changes of state change none of our numbers */
	if (after != TCP_ESTABLISHED && after != TCP_CLOSE && after != TCP_SYN_SENT)
		return 0;
	if (before == after || before == TCP_LISTEN || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;

	u32 slot = slot_of(sock_cgroup(sk));
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	if (!count || !sees_first((u64)sk, (u64)before << 32 | after))
		return 0;
	if (after == TCP_SYN_SENT) {
		begins_connecting(sk, slot);
		return 0;
	}
	if (after == TCP_ESTABLISHED) {
		if (before == TCP_SYN_SENT) {
			ADD(count->connected, 1);
			is_connected(sk);
		} else if (before == TCP_SYN_RECV) {
			ADD(count->accepted, 1);
			if (is_by_endpoint(count))
				serves(count, sk);
		}
		return 0;
	}
	if (before == TCP_SYN_SENT) {
		failed(count, sk);
		return 0;
	}
	if (before == TCP_SYN_RECV)
		return 0;	/* never came about */

	struct carried carried = carried_by((struct tcp_sock *)sk);

	/* the total first: the agent reads the endpoints first, so that they never hold more than it */
	ADD_CARRIED(count, , carried);
	ADD(count->closed, 1);
	if (!is_by_endpoint(count))
		return 0;

	struct endpoint_key key = key_of(count, sk, false);
	struct endpoint *endpoint = entry_of(count, &key);

	if (is_loopback(&key)) {
		ADD(count->loopback_sent_bytes, carried.sent);
		ADD(count->loopback_received_bytes, carried.received);
	}
	if (endpoint) {
		ADD_CARRIED(endpoint, , carried);
		ADD(endpoint->connections, 1);
	}
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(jl_tcp_state, const struct sock *sk, int before, int after)
{
	return change(sk, before, after);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(jl_tcp_state_2, const struct sock *sk, int before, int after)
{
	return change(sk, before, after);
}

/* Adds every open connection of the agent's network namespace to its slot. */
SEC("iter/tcp")
int jl_iter_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;

	if (!common)
		return 0;

	/* none for what is only half a socket: requests, and connections in TIME_WAIT */
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(common);

	if (!tcp)
		return 0;

	u8 state = BPF_CORE_READ(common, skc_state);

	if (state == TCP_CLOSE || state == TCP_SYN_SENT || state == TCP_SYN_RECV)
		return 0;

	struct sock *sk = (struct sock *)tcp;
	u32 slot = slot_of(sock_cgroup(sk));
	struct slot_living *living = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_open_tcp, &slot);
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);
	struct node *node = this_node();

	if (!living || !count || !node)
		return 0;
	if (state == TCP_LISTEN) {	/* those come first in the walk */
		if (is_by_endpoint(count))
			serves(count, sk);
		return 0;
	}

	struct carried carried = carried_by(tcp);

	ADD_CARRIED(living, , carried);
	ADD(living->connections, 1);
	ADD(living->unsent_bytes, unsent_by(tcp));
	if (!is_by_endpoint(count))
		return 0;

	struct endpoint_key key = key_of(count, sk, false);
	struct endpoint *endpoint = entry_of(count, &key);

	if (is_loopback(&key)) {
		ADD(living->loopback_sent_bytes, carried.sent);
		ADD(living->loopback_received_bytes, carried.received);
	}
	if (!endpoint)
		return 0;
	if (endpoint->round != node->connections_round) {
		endpoint->open_sent_bytes = endpoint->open_received_bytes = endpoint->open_retransmits = 0;
		endpoint->open_connections = endpoint->open_rtt_us = endpoint->open_rtt_count = 0;
		endpoint->round = node->connections_round;
	}
	ADD_CARRIED(endpoint, open_, carried);
	ADD(endpoint->open_connections, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
