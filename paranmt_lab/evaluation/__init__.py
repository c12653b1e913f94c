"""Measuring encoders: semantic textual similarity by the protocol of the papers."""
