"""Formats in which families of models write calls of tools: read from an answer, and forced by a grammar."""
