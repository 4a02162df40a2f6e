"""What may be shown of a source's settings: addresses and queries, but nothing that could be a credential.

A field is hidden where its name tells of a secret (`gather.confidential`), where its adapter's schema does not know it,
or where the schema marks it with `writeOnly` (msgspec.Meta(extra_json_schema={"writeOnly": True})). Of what is shown,
texts lose user info, values in the query string of a URL, and what follows `password=`, `Bearer` and the like.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hpad.adapter import AdapterError
from hpad.sources import plugins, redact

HIDDEN: Final = "(not shown)"
_MASK: Final = "***"
_USER_INFO: Final = re.compile(r"//[^\s'\"]*@")
_BARE_USER_INFO: Final = re.compile(r"^[^\s/@:(){}]+:[^\s(){}]*@")
"""Of an address without a scheme; PromQL has an @ too, but brackets with it or a space before."""
_PARAMETER: Final = re.compile(r"([?&;][^=&;#\s]*=)[^&;#\s]*|#\S*")
_SAID: Final = re.compile(
    r"\b((?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|access[-_]?key)\w*\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}]+)",
    re.IGNORECASE,
)
_SCHEME: Final = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)


def settings(adapter: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The adapter's own settings of a source as they may be shown. It blocks: the adapter is imported."""
    known = _known(adapter)
    return {name: _field(name, value) if name in known else HIDDEN for name, value in given.items()}


def _known(adapter: str) -> frozenset[str]:
    """The fields that the adapter's schema has, but for those that it keeps secret; none where it cannot be loaded."""
    try:
        about = msgspec.inspect.type_info(plugins.adapter_class(adapter).Settings)
    except AdapterError:
        return frozenset()
    assert isinstance(about, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in about.fields if not _write_only(field.type))


def _write_only(form: msgspec.inspect.Type) -> bool:
    extra = form.extra_json_schema if isinstance(form, msgspec.inspect.Metadata) else None
    return bool((extra or {}).get("writeOnly"))


def _field(name: str, value: Any) -> Any:
    if redact.holds_secret(name):
        return _places(value)
    if name in redact.CHOSEN_NAMES and isinstance(value, Mapping):
        return {str(key): _value(entry) for key, entry in value.items()}
    return _value(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _field(str(name), entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_value(entry) for entry in value]
    return text(value) if isinstance(value, str) else value


def _places(value: Any) -> Any:
    """Of a secret, where it is kept: `{file: …}` and `{env: …}`; of several, by name. A list of names is none."""
    if isinstance(value, Mapping) and value and set(value) <= {"file", "env"}:
        return {str(name): text(str(entry)) for name, entry in value.items()}
    if isinstance(value, Mapping):
        return {str(name): _places(entry) for name, entry in value.items()}
    return HIDDEN


def text(said: str) -> str:
    """The text without what may be a credential."""
    if "PRIVATE KEY" in said:
        return HIDDEN
    said = _USER_INFO.sub(f"//{_MASK}@", said) if "//" in said else _BARE_USER_INFO.sub(f"{_MASK}@", said)
    if "://" in said:
        said = _PARAMETER.sub(lambda found: f"{found[1] or '#'}{_MASK}", said)
    return _SCHEME.sub(rf"\1 {_MASK}", _SAID.sub(rf"\g<1>{_MASK}", said))
