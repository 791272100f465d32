"""Bringing a model into memory: what fits, parts of a load, trials of kernels."""
