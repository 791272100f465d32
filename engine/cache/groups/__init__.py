"""What layers keep of a text beside pages of the pool: recent tokens, slots of windows, states."""
