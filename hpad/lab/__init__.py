"""The embedded cluster, real servers on loopback, and the demo."""
