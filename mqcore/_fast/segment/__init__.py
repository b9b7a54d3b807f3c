"""The shared segment: boards of topics, queues and workers, and the rings between workers."""
