"""Leader election and shards: which hpad process acts on which HPA."""
