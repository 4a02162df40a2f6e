"""Settings that are tried on the past of an HPA, and which of them are advised."""
