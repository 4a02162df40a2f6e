"""The one room that speaks to an API server: configuration, client, watch caches, scale, status, events."""
