"""Real servers for the demo and for tests: free loopback ports, folders of their own, gone without a trace."""
