"""The programs in the kernel: loading, pinning, slots, iterators. Knows BPF, no HTCondor."""
