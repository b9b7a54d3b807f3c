"""The message store: commit log, consume queues, index, and their recovery."""
