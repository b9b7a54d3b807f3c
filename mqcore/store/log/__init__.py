"""The commit log: records, files and where they lie."""
