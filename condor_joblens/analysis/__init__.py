"""Answers from the numbers of many jobs: how they ended, which differ from their siblings, and what to ask for."""
