"""Measurements. Nothing here is part of the installed package."""
