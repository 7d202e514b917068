"""Rows -> the world outside HTCondor. Runs unprivileged, in joblens-export."""
