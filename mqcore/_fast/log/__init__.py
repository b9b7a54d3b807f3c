"""The commit log: records, its mapped files and where they lie, and the append."""
