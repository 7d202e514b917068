"""One file a source of numbers (kernel counters, cgroup files): each fills columns of the metric table."""
