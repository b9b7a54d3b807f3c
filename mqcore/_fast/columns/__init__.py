"""Messages in columns: stored records read into them, and batches encoded from them."""
