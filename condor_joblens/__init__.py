"""condor_joblens: what a running HTCondor job does, live, exactly, at next to no cost."""

__version__ = "0.1.0"
