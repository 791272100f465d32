"""Experiments: what sides do in turn, what is measured of them, and reports of it for the window and the terminal."""
