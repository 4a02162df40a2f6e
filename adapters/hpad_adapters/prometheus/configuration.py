"""A prometheus-adapter configuration, read as it is: `rules`, `externalRules` and `resourceRules`.

Source of the format: prometheus-adapter, docs/config.md and docs/externalmetrics.md.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpad.adapter import AdapterError
from hpad_adapters.prometheus.resources import Resources
from hpad_adapters.prometheus.settings import Settings

_DEFAULT_QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    is_: str = msgspec.field(default="", name="is")
    is_not: str = ""


class Name(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matches: str = ""
    as_: str = msgspec.field(default="", name="as")


class DiscoveryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    series_query: str
    series_filters: list[Filter] = []
    resources: Resources = Resources()
    name: Name = Name()
    metrics_query: str = _DEFAULT_QUERY


class ResourceRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`node_query` is for the nodes of `kubectl top`; no HPA asks for it."""

    container_query: str = ""
    node_query: str = ""
    resources: Resources = Resources()
    container_label: str = "container"


class ResourceRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: ResourceRule = ResourceRule()
    memory: ResourceRule = ResourceRule()
    window: str = "1m"


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The whole file."""

    rules: list[DiscoveryRule] = []
    external_rules: list[DiscoveryRule] = []
    resource_rules: ResourceRules | None = None


def read(settings: Settings) -> Configuration:
    """The configuration of `rules` or `rules_file`; blocks while it reads. Raises AdapterError (blame "spec")."""
    content: Any = settings.rules
    if settings.rules_file:
        try:
            content = yaml.safe_load(Path(settings.rules_file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise AdapterError(f"rules_file: {settings.rules_file} cannot be read: {error}", "spec") from None
        except yaml.YAMLError as error:
            raise AdapterError(
                f"rules_file: {settings.rules_file} is not valid YAML: {' '.join(str(error).split())}", "spec"
            ) from None
    where = settings.rules_file or "rules"
    try:
        return msgspec.convert({} if content is None else content, Configuration)
    except msgspec.ValidationError as error:
        said = _by_rule(content) or [str(error)]
        raise AdapterError("; ".join(f"{where}: {each}" for each in said), "spec") from None


def _by_rule(content: Any) -> list[str]:
    """What is wrong with each rule on its own; empty where it is something else."""
    found = []
    for section in ("rules", "externalRules"):
        listed = content.get(section) if isinstance(content, dict) else None
        for index, rule in enumerate(listed if isinstance(listed, list) else []):
            try:
                msgspec.convert(rule, DiscoveryRule)
            except msgspec.ValidationError as error:
                found.append(f"{section}[{index}]: {error}")
    return found
