"""Layers that carry a state from token to token, and the recurrences behind them."""
