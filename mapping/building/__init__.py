"""Builds a Program from a StreamGraph and its groups."""
