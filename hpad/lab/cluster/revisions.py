"""What a resourceVersion in a request means: a number, none where it is empty or 0."""

from hpad.lab.cluster import errors

_MOST = 2**64 - 1


def fault(text: str) -> str | None:
    """What Go says of a text that is no uint64; None for a number."""
    if not (text.isascii() and text.isdecimal()):
        return f'strconv.ParseUint: parsing "{text}": invalid syntax'
    return f'strconv.ParseUint: parsing "{text}": value out of range' if int(text) > _MOST else None


def of_object(text: object) -> int:
    """The version that a write is for, 0 for whatever there is; raises ApiError 500, as the API server answers."""
    if not text:
        return 0
    if problem := fault(str(text)):
        raise errors.unexplained(problem)
    return int(str(text))


def of_list(text: str) -> int | None:
    """The version that a list asks for, None when empty; raises ApiError 400."""
    if problem := text and fault(text):
        message = f'invalid resource version: resourceVersion: Invalid value: "{text}": {problem}'
        raise errors.bad_request(message)
    return int(text) if text else None


def of_read(text: str) -> int:
    """The version that a watch or the read of one object asks for, 0 when empty; raises ApiError 500."""
    if problem := text and fault(text):
        raise errors.unexplained(f'resourceVersion: Invalid value: "{text}": {problem}')
    return int(text) if text else 0
