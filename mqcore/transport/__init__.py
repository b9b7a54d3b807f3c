"""Connections and calls: the only place with sockets on the Python side, all of it on asyncio."""
