"""Consume queues and the index: units, who writes them from the log, who reads them."""
