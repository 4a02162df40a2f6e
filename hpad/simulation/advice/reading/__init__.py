"""The past of HPAs: from Prometheus, and from what hpad itself has recorded."""
