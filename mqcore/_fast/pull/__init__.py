"""The pull worker: bindings, the scan, pulls that are held, and cold pages."""
