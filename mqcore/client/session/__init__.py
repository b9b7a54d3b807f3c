"""What producers and consumers of one client share: connections, routes, heart-beats, ways from threads to the loop."""
