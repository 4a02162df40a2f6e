"""Leader election: which hpad process acts."""
