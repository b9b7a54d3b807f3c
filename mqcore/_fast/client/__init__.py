"""What a client does for each message: frames, batches, answers and records."""
