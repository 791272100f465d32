"""Groups of layers that keep something of a text besides pages of the pool: recent tokens, slots of windows, states."""
