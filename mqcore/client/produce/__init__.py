"""A message on its way out: the choice of a queue, batches, the short way of blocking sends, transactions, requests."""
