"""Corpora as files for others, and files of others as corpora."""
