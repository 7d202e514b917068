"""What joblensd publishes: rows and events in shared memory, job ads, the programs in the kernel."""
