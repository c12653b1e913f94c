"""Measuring systems: tasks, results in long form, and the figures of the papers beside ours."""
