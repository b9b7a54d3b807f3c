"""The version of mqcore, read by the build and printed by every command."""

__version__ = "0.1.0"
