"""Real servers for the demo and for tests, with free loopback ports and temporary folders that are removed."""
