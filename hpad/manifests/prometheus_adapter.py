"""Converts configurations of prometheus-adapter, and values of its Helm chart, to sources of the adapter `prometheus`.

A configuration is a file, or an entry of a ConfigMap. prometheus-adapter refuses unknown and repeated fields, and takes
null for an absent field. Sources: prometheus-adapter, pkg/config: config.go and loader.go;
prometheus-community/helm-charts, prometheus-adapter: values.yaml, templates/configmap.yaml and deployment.yaml.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api.problem import Problem, invalid
from hpad.manifests import documents
from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import Note, split_url, without_null

UNKNOWN_URL: Final = f"http://{PLACEHOLDER}:9090"
_RULES: Final = ("rules", "externalRules", "resourceRules")
_CHART: Final = "prometheus-adapter"
"""The key of the values where the chart is a part of another one."""
_CHART_RULES: Final = {"custom": "rules", "external": "externalRules", "resource": "resourceRules"}
"""The part of the configuration that each of the chart's values becomes."""
_OTHER_CHART_RULES: Final = ("default", "existing")
_CHART_URL: Final = {"url": "http://prometheus.default.svc", "port": 9090, "path": ""}
"""The chart's defaults."""
_OF_A_RULE: Final = ("seriesquery", "metricsquery")
_SHOW: Final = "kubectl get configmap {0} -o yaml | hpad convert -"


class WrittenRules(msgspec.Struct, frozen=True):
    """One configuration: its content, its field in the document ("" if it is the whole document), and the URL.

    `sections`: the fields in the document of its parts that have another name there.
    """

    field: str
    content: dict[str, Any]
    url: str = UNKNOWN_URL
    sections: dict[str, str] = {}

    def origin(self, path: str) -> str:
        """Returns the path in the document of one in the content, such as rules[0].name."""
        section = next((each for each in _RULES if path.startswith(each)), "")
        if section in self.sections:
            return self.sections[section] + path.removeprefix(section)
        return ".".join(filter(None, (self.field, path)))


class FoundRules(msgspec.Struct, frozen=True):
    """What a document has of prometheus-adapter. With `errors` it is refused as a whole."""

    rules: list[WrittenRules] = []
    errors: list[Problem] = []
    notes: list[Note] = []


def find(value: Mapping[str, Any]) -> FoundRules | None:
    """Returns the configurations in a document; None for any other document."""
    if value.get("kind") == "ConfigMap" and isinstance(value.get("data"), dict):
        return _in_config_map(value)
    if value.get("kind") is not None or "apiVersion" in value:
        return None
    for prefix, values in ((f"{_CHART}.", value.get(_CHART)), ("", value)):
        if isinstance(values, dict) and _are_values(values):
            return _of_chart(values, prefix)
    if _resembles(value) or any(_meant(str(key), _RULES) for key in value):
        content, errors = _read(value)
        return FoundRules([] if errors else [WrittenRules("", content)], errors)
    return None


def source(rules: WrittenRules) -> dict[str, Any]:
    """Returns the settings of a source with these rules."""
    return {"adapter": "prometheus", "url": rules.url, "rules": rules.content}


def _in_config_map(value: Mapping[str, Any]) -> FoundRules | None:
    found = FoundRules()
    for name, text in value["data"].items():
        field = f"data[{name}]"
        parsed = documents.parse(text.encode(), "") if isinstance(text, str) else []
        if len(parsed) != 1 or not _resembles(parsed[0].value):
            found.notes.append(Note(field, "is not carried over"))
            continue
        content, errors = _read(parsed[0].value)
        errors = [*parsed[0].faults, *errors]
        found.errors.extend(Problem(field, f"{field}: {error.text}") for error in errors)
        found.rules.append(WrittenRules(field, content))
    others = [Note(f"binaryData[{name}]", "is not carried over") for name in value.get("binaryData") or {}]
    return msgspec.structs.replace(found, notes=[*found.notes, *others]) if found.rules else None


def _read(value: Mapping[Any, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Returns a configuration without its null fields, and the errors for which prometheus-adapter refuses it."""
    errors = [
        Problem(str(key), f"{key}: unknown field, which prometheus-adapter refuses{_hint(key, _RULES)}")
        for key in value
        if key not in _RULES
    ]
    if isinstance(value.get("rules"), dict):
        text = "rules: has values of the chart, which writes the lists rules and externalRules of them"
        errors.append(Problem("rules", text))
    content = {str(key): without_null(each) for key, each in value.items() if each is not None}
    if not any(content.values()) and not errors:
        errors.append(Problem("", f"has no rules: neither {', '.join(_RULES[:2])} nor {_RULES[2]}"))
    return {key: each for key, each in content.items() if each}, errors


def _resembles(value: Any) -> bool:
    """Returns whether a document is a configuration, perhaps with misspelt fields.

    A list of `rules` alone is not enough: other programs have one, such as the JMX exporter.
    """
    if not isinstance(value, dict) or "kind" in value:
        return False
    others = set(value) <= set(_RULES) and set(value) != {"rules"} and bool(value)
    return others or _has_chart_rules(value) or any(map(_is_rule, _entries(value.values())))


def _entries(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else ()


def _is_rule(entry: Any) -> bool:
    return isinstance(entry, dict) and any(str(key).lower() in _OF_A_RULE for key in entry)


def _meant(name: str, known: Iterable[str]) -> str:
    """Returns the known name that a misspelt one means, "" for none."""
    names = {each.lower(): each for each in known}
    [found] = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.85) or [""]
    return names.get(found, "")


def _hint(name: Any, known: Iterable[str]) -> str:
    meant = _meant(str(name), known)
    return f'; did you mean "{meant}"?' if meant else f"; known are {', '.join(known)}"


def _are_values(value: Mapping[str, Any]) -> bool:
    """Returns whether a document has values of the chart."""
    server = value.get("prometheus")
    return _has_chart_rules(value) or (isinstance(server, dict) and bool(server.keys() & _CHART_URL.keys()))


def _has_chart_rules(value: Mapping[str, Any]) -> bool:
    rules, names = value.get("rules"), (*_CHART_RULES, *_OTHER_CHART_RULES)
    return isinstance(rules, dict) and any(_meant(str(name), names) for name in rules)


def _of_chart(values: Mapping[str, Any], prefix: str) -> FoundRules:
    found = FoundRules()
    rules = values.get("rules") or {}
    if not isinstance(rules, dict):
        return FoundRules(errors=[invalid(f"{prefix}rules", rules, "must be an object")])
    content = _chart_rules(rules, f"{prefix}rules.", found)
    url = _chart_url(values.get("prometheus"), f"{prefix}prometheus", found)
    found.notes.extend(_arguments(values.get("extraArguments"), f"{prefix}extraArguments"))
    if content:
        sections = {part: f"{prefix}rules.{name}" for name, part in _CHART_RULES.items()}
        found.rules.append(WrittenRules(f"{prefix}rules", content, url, sections))
        if "url" not in (values.get("prometheus") or {}):
            text = f"is absent; carried over as the chart's default, {url}"
            found.notes.append(Note(f"{prefix}prometheus.url", text, lost=False))
    return found


def _chart_rules(rules: Mapping[str, Any], prefix: str, found: FoundRules) -> dict[str, Any]:
    """Returns the configuration that the chart writes for these values, but for its own default rules."""
    known = (*_CHART_RULES, *_OTHER_CHART_RULES)
    for name in rules:
        if name not in known:
            text = f"{prefix}{name}: unknown value, which the chart ignores{_hint(name, known)}"
            found.errors.append(Problem(f"{prefix}{name}", text))
    if existing := rules.get("existing"):
        text = f'the rules are in ConfigMap "{existing}", in place of all others: {_SHOW.format(existing)}'
        found.notes.append(Note(f"{prefix}existing", text))
        return {}
    if rules.get("default", True):
        show = _SHOW.format("NAME")
        text = f"the default rules are those of the chart: convert the ConfigMap that it writes ({show}), or set "
        found.notes.append(Note(f"{prefix}default", f"{text}default: false if no HPA needs them"))
    content = {}
    for name, part in _CHART_RULES.items():
        each, kind = rules.get(name), dict if name == "resource" else list
        if each and not isinstance(each, kind):
            detail = f"must be {'an object' if kind is dict else 'a list'}"
            found.errors.append(invalid(f"{prefix}{name}", each, detail))
        elif each:
            content[part] = without_null(each)
    return content


def _chart_url(server: Any, field: str, found: FoundRules) -> str:
    """Returns the URL that the chart gives to prometheus-adapter: url, port and path. Null takes a default away."""
    if server is not None and not isinstance(server, dict):
        found.errors.append(invalid(field, server, "must be an object"))
        return UNKNOWN_URL
    named = _CHART_URL | (server or {})
    url, port, path = (str(named[name] or "") for name in _CHART_URL)
    if "{{" in url:
        text = f"is a template: write the URL into the source, in place of {UNKNOWN_URL}"
        found.notes.append(Note(f"{field}.url", text))
        return UNKNOWN_URL
    whole = f"{url}{f':{port}' if port else ''}{path}"
    parts = split_url(whole)
    misplaced = parts.path.startswith("/:")  # the port, behind a url that ends with a slash
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or misplaced:
        detail = "url, port and path of the chart must make a URL of http or https without credentials"
        hint = "; the chart appends port 9090 unless port is 0" if "port" not in (server or {}) else ""
        shown = "…" if "@" in whole else whole
        found.errors.append(invalid(f"{field}.url", shown, detail + hint))
    return parts._replace(path=parts.path.replace("//", "/")).geturl()  # as path.Join of prometheus-adapter


def _arguments(arguments: Any, field: str) -> Iterator[Note]:
    """Yields a note for each argument about the connection to Prometheus; its value may be a secret."""
    for index, argument in enumerate(arguments if isinstance(arguments, list) else ()):
        name = str(argument).partition("=")[0]
        if name.startswith("--prometheus-"):
            yield Note(f"{field}[{index}]", f"{name} is not carried over: write its counterpart into the source")
