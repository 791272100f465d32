"""The user's own MCP servers: the file that keeps them, connections to them, and calls of their tools."""
