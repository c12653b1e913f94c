"""Measures of pairs: what a training set is chosen by."""
