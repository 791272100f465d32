"""Ways in: the websocket, HTTP, the kvasir command. The only asyncio code that talks to a network."""
