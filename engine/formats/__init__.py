"""Safetensors and GGUF, what is packed in them, checked before anything large is read."""
