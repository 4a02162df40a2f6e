"""The client of the API server: authentication, requests, watch caches, scale, status, events."""
