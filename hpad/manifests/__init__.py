"""HPAs from files: reading documents, validating them, and a folder as a source of HPAs beside the API server."""
