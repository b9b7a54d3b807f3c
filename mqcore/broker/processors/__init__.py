"""Request processors: one module per family of requests, and the table that says which code goes where."""
