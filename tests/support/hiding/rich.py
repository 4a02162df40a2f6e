"""Hides rich from the processes that tests start, as where hpad is installed without the tools of development.

structlog would import it, which takes a quarter of the start of a short command.
"""

raise ImportError("hpad does not need rich")
