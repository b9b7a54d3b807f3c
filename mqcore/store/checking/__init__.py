"""Looking through a store's files for damage, beside a broker or without one. See docs/operations.md."""
