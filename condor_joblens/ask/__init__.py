"""Questions of an administrator about a running job, as BPF programs in C of his own, run by bcc."""
