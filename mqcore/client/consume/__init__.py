"""A message on its way in: queues that are divided, pulled, handed to the application and committed."""
