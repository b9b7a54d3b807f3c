"""/metrics for Prometheus, /healthz and /readyz, from what the boards say."""
