"""Prompts and answers between the words of clients and the engine's."""
