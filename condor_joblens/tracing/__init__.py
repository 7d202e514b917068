"""Level trace: which function of a running job is called when, by whom, and how it ends."""
