"""Consumers that hand messages out: to handlers, in tasks or threads, or to whoever iterates."""
