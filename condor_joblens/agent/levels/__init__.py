"""Which level a run has: what the policies decide, who has the last word, and how a level is applied."""
