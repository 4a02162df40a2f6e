"""Parses the resourceVersion of requests; the errors depend on the kind of request."""

from hpad.lab.cluster import errors

_MOST = 2**64 - 1


def fault(text: str) -> str | None:
    """Returns Go's error for a text that is not a uint64; None for a valid number."""
    if not (text.isascii() and text.isdecimal()):
        return f'strconv.ParseUint: parsing "{text}": invalid syntax'
    return f'strconv.ParseUint: parsing "{text}": value out of range' if int(text) > _MOST else None


def of_object(text: object) -> int:
    """Returns the version that a write expects, 0 for any; raises ApiError 500, as the API server does."""
    if not text:
        return 0
    if problem := fault(str(text)):
        raise errors.without_reason(problem)
    return int(str(text))


def of_list(text: str) -> int | None:
    """Returns the version of a list request, None if it is empty; raises ApiError 400."""
    if problem := text and fault(text):
        message = f'invalid resource version: resourceVersion: Invalid value: "{text}": {problem}'
        raise errors.bad_request(message)
    return int(text) if text else None


def of_read(text: str) -> int:
    """Returns the version of a watch or of a read of one object, 0 if it is empty; raises ApiError 500."""
    if problem := text and fault(text):
        raise errors.without_reason(f'resourceVersion: Invalid value: "{text}": {problem}')
    return int(text) if text else 0
