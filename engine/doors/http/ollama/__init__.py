"""Ollama's interface, /api."""
