"""Which jobs run here: cgroup -> slot -> job ad, and the activation socket. Knows HTCondor and cgroups, no BPF."""
