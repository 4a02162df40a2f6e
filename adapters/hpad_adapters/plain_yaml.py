"""YAML from outside as plain values, of a bounded size and depth.

Anchors, aliases and tags are refused: a short text of these can stand for a huge value.
"""

import re
from typing import Any, Final

import yaml

_DEEPEST: Final = 100
_LONG_NUMBER: Final = re.compile(r"[-+.:_0-9a-fA-FxX]{400,}")
"""Text that YAML may take for a number: 1:30 is 90, by arithmetic whose time grows with the square of the length."""
_BEGINS: Final = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_ENDS: Final = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
# The parser in C is some ten times as fast; PyYAML has none without libyaml.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
INVALID: Final = (yaml.YAMLError, LookupError, ValueError, TypeError, RecursionError)
"""What `load` raises for a text that is not YAML."""


class RefusedDocumentError(Exception):
    """The document is refused. The message is what it has, such as "more than max_elements (1000)"."""


def load(body: bytes, most: int) -> Any:
    """Returns the value of a text with at most so many elements. Raises RefusedDocumentError and INVALID.

    Blocks: call it in a thread.
    """
    count = depth = 0
    for event in yaml.parse(body, _Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise RefusedDocumentError("YAML with anchors, aliases or tags, which are not read")
        depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
        count += isinstance(event, (yaml.ScalarEvent, *_BEGINS))
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
            raise RefusedDocumentError("a number that is too long")
        check(count, depth, most)
    return yaml.load(body, _Loader)


def check(count: int, depth: int, most: int) -> None:
    """Raises RefusedDocumentError for too many elements, or too deep ones."""
    if count > most:
        raise RefusedDocumentError(f"more than max_elements ({most})")
    if depth > _DEEPEST:
        raise RefusedDocumentError(f"a document nested more than {_DEEPEST} levels deep")
