"""The name server: which brokers live, and which topics they have. Start it with ``python -m mqcore.namesrv``."""
