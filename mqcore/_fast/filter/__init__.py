"""Filters over message properties, evaluated where the records lie."""
