"""hpad: the job of the Kubernetes HorizontalPodAutoscaler controller, done in asyncio."""

__version__ = "0.1.0"
