"""Triggers in joblensd: what is told to their child (feed.py), and what they may have done (actions.py, limits.py)."""
