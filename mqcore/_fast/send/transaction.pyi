# Nothing of this is for Python: the loop calls it.
