"""The engine loop: commands, admission, step, answers, events."""
