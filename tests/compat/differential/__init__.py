"""The same requests to Apache's broker and to ours, and what may differ between their answers."""
