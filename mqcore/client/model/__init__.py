"""What everybody in the client speaks of: values and rules about them, which open nothing and know no other room."""
