"""What may go wrong in a demo, as one sentence for the person who started it."""


class DemoError(Exception):
    """The demo did not show what it should; the text says what was wanted, and what was seen instead."""
