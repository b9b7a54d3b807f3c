"""Consumers that are asked for messages, with a group or without."""
