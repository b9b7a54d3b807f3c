"""Who may do what: accounts in files, signatures, permissions."""
