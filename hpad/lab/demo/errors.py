"""The error of the demo."""


class DemoError(Exception):
    """The demo failed; the text names the expected and the actual state in one sentence."""
