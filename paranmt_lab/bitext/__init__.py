"""Readers of bitext and of ready pairs, and their import as a corpus."""
from paranmt_lab.bitext.importing import import_bitext, import_summary, read_bitext  # noqa: F401
