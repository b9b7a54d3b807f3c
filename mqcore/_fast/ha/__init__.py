"""The ha worker: the log to slaves, and on a slave from its master."""
