"""A run from its start to its end, and what becomes of it if joblensd is restarted in between."""
