"""The ground floor: words shared between processes, bytes, files and checksums; it knows nothing of messages."""
