"""HPAs from files: reading documents, judging them, and a folder as a source of HPAs beside the API server."""
