"""Copies of a store to be kept: made while its broker runs, added to, checked, and brought back. See docs/backup.md."""
