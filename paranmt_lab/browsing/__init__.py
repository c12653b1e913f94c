"""Answers to the questions of the app on corpora of any size."""
