"""`hpad adapters`: what is installed that answers metrics, and how it is configured."""

import argparse
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hpad.adapter import Adapter, AdapterError
from hpad.api.sample import SOURCE_TYPES
from hpad.cli.output import Failure
from hpad.sources import plugins

_EPILOG = """\
examples:
  hpad adapters list               the adapters that are installed, hpad's own and those of other packages
  hpad adapters describe rabbitmq  which metrics it answers, and every setting with type, default and meaning
"""
_MAPPINGS = (msgspec.inspect.DictType,)
_LISTS = (msgspec.inspect.ListType, msgspec.inspect.SetType, msgspec.inspect.VarTupleType)


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "adapters",
        help="what can answer metrics, and how it is configured",
        description="Show the adapters that are installed, and how a source with one of them is configured.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=list_all)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="all adapters, a line each (without an ACTION, too)")
    listing.set_defaults(run=list_all)
    describing = actions.add_parser("describe", help="all about one adapter")
    describing.add_argument("name", metavar="NAME", help="as in `adapter: NAME` of the configuration")
    describing.set_defaults(run=describe)


def list_all(args: argparse.Namespace) -> int:
    """One line per adapter; one that cannot be used says why. 0, or 1 if there is such a one."""
    broken = 0
    rows = [("NAME", "SERVES", "ANSWERS")]
    for name in plugins.names():
        try:
            adapter = plugins.adapter_class(name)
            serves = "every type" if adapter.serves.issuperset(SOURCE_TYPES) else ", ".join(sorted(adapter.serves))
            rows.append((name, serves, _summary(adapter)))
        except AdapterError as error:
            broken += 1
            rows.append((name, "-", f"broken: {error.message}"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, serves, text in rows:
        print(f"{name:<{widths[0]}}  {serves:<{widths[1]}}  {text}".rstrip())
    return 1 if broken else 0


def describe(args: argparse.Namespace) -> int:
    """Everything about one adapter; raises Failure."""
    try:
        adapter = plugins.adapter_class(args.name)
        metrics = plugins.offered(args.name, adapter)
    except AdapterError as error:
        raise Failure(error.message) from None
    print(args.name)
    if _text(adapter):
        print(_indented(_text(adapter)))
    print(f"\nserves:   {', '.join(sorted(adapter.serves))}")
    print(f"metrics:  {_metrics(metrics)}")
    print("\nsettings, beside those of every source (adapter, match, timeout, limits, namespaces, fallback):\n")
    print("\n".join(_struct(adapter.Settings, "  ")))
    return 0


def _metrics(metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]]) -> str:
    """What comes to a source of this adapter without a rule."""
    if isinstance(metrics, Mapping):
        listed = (f"{kind}: {', '.join(patterns)}" for kind, patterns in sorted(metrics.items()))
        return "; ".join(listed) or "those that its settings or a `match` name"
    return "any name" if "*" in metrics else ", ".join(metrics)


def _summary(adapter: type[Adapter]) -> str:
    return _text(adapter).partition("\n")[0]


def _text(kind: type) -> str:
    """The docstring that the class has itself, not that of a class it is made from."""
    return inspect.cleandoc(vars(kind).get("__doc__") or "")


def _struct(kind: type[msgspec.Struct], indent: str, seen: tuple[type[msgspec.Struct], ...] = ()) -> Iterator[str]:
    """The fields of a struct with type, default and meaning, then those of the structs they hold."""
    inner: list[type[msgspec.Struct]] = []
    about = msgspec.inspect.type_info(kind)
    assert isinstance(about, msgspec.inspect.StructType)
    for field in about.fields:
        yield f"{indent}{field.encode_name}: {_type(field.type, inner)}{_default(field)}{_described(field.type)}"
    text = _text(kind)
    if text and not text.startswith(f"{kind.__name__}("):
        yield ""
        yield _indented(text, indent)
    for each in dict.fromkeys(inner):
        if each not in seen and each is not kind:
            yield f"\n{indent}{each.__name__}:"
            yield from _struct(each, f"{indent}  ", (*seen, kind, *inner))


def _type(kind: msgspec.inspect.Type, inner: list[type[msgspec.Struct]]) -> str:
    """A type as people write it; structs are noted, to be shown as well."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _type(kind.type, inner)
    if isinstance(kind, msgspec.inspect.StructType):
        inner.append(kind.cls)
        return kind.cls.__name__
    if isinstance(kind, _MAPPINGS):
        return f"mapping of {_type(kind.key_type, inner)} to {_type(kind.value_type, inner)}"
    if isinstance(kind, _LISTS):
        return f"list of {_type(kind.item_type, inner)}"
    if isinstance(kind, msgspec.inspect.UnionType):
        return " or ".join(_type(each, inner) for each in kind.types)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return " | ".join(map(str, kind.values))
    names = {"Str": "text", "Int": "whole number", "Float": "number", "Bool": "true or false", "None": "nothing"}
    name = type(kind).__name__.removesuffix("Type")
    return names.get(name, name.lower())


def _default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return " (required)"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    shown = msgspec.json.encode(value, enc_hook=str).decode()
    return "" if value is None else f" (default: {shown})"


def _described(kind: msgspec.inspect.Type) -> str:
    """What `msgspec.Meta` of the field says."""
    extra = kind.extra_json_schema if isinstance(kind, msgspec.inspect.Metadata) else None
    text = (extra or {}).get("description")
    return f"  {text}" if text else ""


def _indented(text: str, indent: str = "  ") -> str:
    return "\n".join(f"{indent}{line}".rstrip() for line in text.splitlines())
