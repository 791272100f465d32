"""Techniques of the cache: what the catalogue says of each, and what each does not go together with."""
