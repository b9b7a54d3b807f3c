"""The pages, one module a family."""
