"""The broker's ports on the shared segment and the store's files."""
