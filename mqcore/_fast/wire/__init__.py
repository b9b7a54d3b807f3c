"""What goes over connections: scanners of headers, and answers."""
