"""`hpad demo`: hpad scales real processes, in about two minutes.

Pods run `python -m hpad.lab.demo.workloads.NAME`. This file imports nothing, so that they start fast.
"""


class DemoError(Exception):
    """The demo failed; the text names the expected and the actual state in one sentence."""
