"""What the pages show, without HTTP: one module a family of pages."""
