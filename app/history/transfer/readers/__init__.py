"""Chats of files: Kvasir's own, OpenAI's export, Open WebUI's and LM Studio's, one at a time."""
