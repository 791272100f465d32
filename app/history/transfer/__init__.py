"""Chats to and from files: export in four formats, import of Kvasir's own and of other programs'."""
