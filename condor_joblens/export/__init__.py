"""joblens-export: the process that has the network and no privilege. It sends what is in shared memory to the sinks."""
