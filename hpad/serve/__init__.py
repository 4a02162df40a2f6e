"""Read-only windows over HTTP."""
