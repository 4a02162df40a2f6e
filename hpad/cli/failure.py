"""What a command raises when it cannot do what was asked."""


class Failure(Exception):
    """An expected failure: the message is the one line the user gets, the exit status is 1."""
