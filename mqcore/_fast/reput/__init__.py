"""The reput worker: from the commit log to queues and index."""
