"""What consumes the broker's own queues, one module a service: delay levels now, timers and transactions later."""
