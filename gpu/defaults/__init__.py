"""Schedules without any search."""
