"""Faults that the tests must find, injected one at a time into a copy of the tree: the proof that a smaller suite finds
what the larger one found."""
