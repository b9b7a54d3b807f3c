"""The broker: boot and supervision, and everything that the broker process decides (``BrokerCore`` and below)."""
