"""Consume queues and the index: their units, who writes them from the log, who reads them."""
