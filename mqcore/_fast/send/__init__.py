"""The send worker: connections, requests to send, and pulls on their way to a pull worker."""
