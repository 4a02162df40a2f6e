"""`hpad adapters`: lists the installed adapters, and describes the settings of one."""

import argparse
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.adapter import Adapter, AdapterError
from hpad.api.sample import SOURCE_TYPES
from hpad.cli import output, program
from hpad.cli.output import Failure
from hpad.sources import plugins

HELP: Final = "list the installed adapters of metric sources, or describe their settings"
DESCRIPTION: Final = "List the installed adapters, the kinds of metric sources, or describe the settings of one."
EPILOG: Final = """\
examples:
  hpad adapters list               the installed adapters, hpad's own and those of other packages
  hpad adapters describe rabbitmq  which metrics it answers, and every setting with type, default and meaning
  hpad adapters -o json            the list for a program; `describe -o json` gives settings as a JSON schema

exit status: 0 success, 1 an adapter cannot be loaded or there is none of that name, 2 wrong use
"""
_LISTS = (msgspec.inspect.ListType, msgspec.inspect.SetType, msgspec.inspect.VarTupleType)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output.add_format(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    text = "list all adapters, one per line (default)"
    list_parser = program.add_command(actions, "list", run, text, "List all installed adapters.")
    # Without a default, which would replace the value before the action: `hpad adapters -o json list`.
    output.add_format(list_parser, default=argparse.SUPPRESS)
    about = "Describe one adapter: the metrics it answers, and each setting with type, default and meaning."
    describe_parser = program.add_command(actions, "describe", describe, "describe one adapter and its settings", about)
    describe_parser.add_argument("name", metavar="NAME", help="as in `adapter: NAME` of the configuration")
    output.add_format(describe_parser, default=argparse.SUPPRESS)


def loadable() -> dict[str, type[Adapter]]:
    """Returns the installed adapters that can be loaded, by name. Blocks: imports them."""
    found = {}
    for name in plugins.names():
        try:
            found[name] = plugins.adapter_class(name)
        except AdapterError:
            continue
    return found


def run(args: argparse.Namespace) -> int:
    """Prints one line per adapter, with the reason if it cannot be loaded. 0 if all can be loaded, else 1."""
    found = [_listed(name) for name in plugins.names()]
    if args.output == "json":
        output.print_value({"items": found}, "json")
    else:
        output.show_table([("NAME", "SERVES", "ANSWERS"), *map(_row, found)])
    return 1 if any("error" in each for each in found) else 0


def _listed(name: str) -> dict[str, Any]:
    """Returns what the list says about an adapter."""
    try:
        adapter = plugins.adapter_class(name)
    except AdapterError as error:
        return {"name": name, "error": error.message}
    return {"name": name, "serves": sorted(adapter.serves), "answers": _text(adapter).partition("\n")[0]}


def _row(listed: Mapping[str, Any]) -> tuple[str, str, str]:
    if "error" in listed:
        return listed["name"], "-", f"broken: {listed['error']}"
    serves = "every type" if {*SOURCE_TYPES} <= {*listed["serves"]} else ", ".join(listed["serves"])
    return listed["name"], serves, listed["answers"]


def describe(args: argparse.Namespace) -> int:
    """Prints metrics and settings of one adapter; raises Failure if it cannot be loaded."""
    try:
        adapter = plugins.adapter_class(args.name)
        metrics = plugins.offered(args.name, adapter)
    except AdapterError as error:
        raise Failure(error.message) from None
    queries: type[msgspec.Struct] | None = getattr(adapter, "QuerySchema", None)
    if args.output == "json":
        about = {"answers": _text(adapter), "serves": sorted(adapter.serves), "metrics": metrics}
        schemas = {"settings": msgspec.json.schema(adapter.Settings)}
        if queries is not None:
            schemas["queries"] = msgspec.json.schema(queries)
        output.print_value({"name": args.name, **msgspec.to_builtins(about), **schemas}, "json")
        return 0
    print(args.name)
    if _text(adapter):
        print(textwrap.indent(_text(adapter), "  "))
    print(f"\nserves:   {', '.join(sorted(adapter.serves))}")
    print(f"metrics:  {_metrics(metrics)}")
    print(
        "\nsettings, besides those of every source (adapter, match, timeout, limits, namespaces, queries, fallback):\n"
    )
    settings = list(_struct(adapter.Settings, "  "))
    print("\n".join(settings))
    if queries is not None:
        print("\nparameters of a query that an Autoscaler brings along, where `queries` opens the source:\n")
        heading = f"\n  {queries.__name__}:"
        known = [f"  those of {queries.__name__}, above"] if heading in settings else _struct(queries, "  ")
        print("\n".join(known))
    return 0


def _metrics(metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]]) -> str:
    """Returns the metrics that a source of this adapter answers without a `match` or route."""
    if isinstance(metrics, Mapping):
        listed = "; ".join(f"{kind}: {', '.join(patterns)}" for kind, patterns in sorted(metrics.items()) if patterns)
    else:
        listed = "any name" if "*" in metrics else ", ".join(metrics)
    return listed or "only metrics that its settings or a `match` name"


def _text(kind: type) -> str:
    """Returns the docstring of the class itself, not an inherited one."""
    return inspect.cleandoc(vars(kind).get("__doc__") or "")


def _struct(kind: type[msgspec.Struct], indent: str, seen: tuple[type[msgspec.Struct], ...] = ()) -> Iterator[str]:
    """Yields the fields of a struct with type, default and meaning, then nested structs.

    Required fields come first, and a struct's own before those that it shares with others.
    """
    inner: list[type[msgspec.Struct]] = []
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    definer = {
        name: depth for depth, base in reversed([*enumerate(kind.__mro__)]) for name in inspect.get_annotations(base)
    }
    for field in sorted(info.fields, key=lambda field: (not field.required, definer[field.name])):
        description = (getattr(field.type, "extra_json_schema", None) or {}).get("description")  # of its msgspec.Meta
        meaning = f"  {description}" if description else ""
        yield f"{indent}{field.encode_name}: {_type(field.type, inner)}{_default(field)}{meaning}"
    text = _text(kind)
    if text and not text.startswith(f"{kind.__name__}("):
        yield ""
        yield textwrap.indent(text, indent)
    for each in dict.fromkeys(inner):
        if each in seen or each is kind:
            continue
        if name := _adapter_with(each):
            yield f"\n{indent}{each.__name__}: the settings of the adapter {name}; see `hpad adapters describe {name}`"
        else:
            yield f"\n{indent}{each.__name__}:"
            yield from _struct(each, f"{indent}  ", (*seen, kind, *inner))


def _adapter_with(kind: type[msgspec.Struct]) -> str:
    """Returns the adapter whose settings the struct inherits without a field of its own; "" for any other struct."""
    base = kind.__bases__[0]
    if base is msgspec.Struct or set(kind.__struct_fields__) != set(getattr(base, "__struct_fields__", ())):
        return ""
    return next((name for name, adapter in loadable().items() if adapter.Settings is base), "")


def _type(kind: msgspec.inspect.Type, inner: list[type[msgspec.Struct]]) -> str:
    """Returns the type in words; appends nested structs to `inner`."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _type(kind.type, inner)
    if isinstance(kind, msgspec.inspect.StructType):
        inner.append(kind.cls)
        return kind.cls.__name__
    if isinstance(kind, msgspec.inspect.DictType):
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
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return "" if value is None else f" (default: {text})"
