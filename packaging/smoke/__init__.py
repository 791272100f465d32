"""Tries what people download as they would: on a clean system, as an ordinary user, without a network."""
