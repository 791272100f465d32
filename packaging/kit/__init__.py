"""Builds, checks and describes what people download."""
