"""Two to four answers to one message, side by side."""
