"""What HTCondor's startd holds of its slots' jobs, asked by a process without privilege."""
