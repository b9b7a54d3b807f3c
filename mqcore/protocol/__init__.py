"""The remoting protocol as values: bytes in, values out, and back. Nothing here opens a socket."""
