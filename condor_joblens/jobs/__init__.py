"""Which jobs run here: cgroup -> slot -> job ad. Knows HTCondor and cgroups, no BPF."""
