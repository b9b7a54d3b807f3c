"""What can be seen of sending and consuming: hooks, trace records, figures."""
