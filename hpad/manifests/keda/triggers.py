"""Converts KEDA's triggers `cpu`, `memory`, `cron`, `kubernetes-workload`, `external` and `external-push`.

Source: KEDA 2.21, "CPU", "Memory" and "Cron".
"""

import re
from typing import Any, Final

from hpad.api import hpa as v2
from hpad.api import selector as selectors
from hpad.api.problem import Invalid, invalid
from hpad.api.selector import Selector, SelectorError
from hpad.engine import controls
from hpad.manifests.keda.conversion import ConvertedSource
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import FROM_ENV, Trigger

_UTILIZATION: Final = "Utilization"
_AVERAGE: Final = "AverageValue"


def resource(trigger: Trigger) -> None:
    """Adds a Resource metric, or with `containerName` a ContainerResource metric; raises Invalid."""
    older = trigger.metadata.text("type")
    kind = trigger.metric_type or older
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        target = {"type": kind, "averageUtilization": trigger.whole_number("value", value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value")}
    else:
        raise Invalid(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    measured = {"name": trigger.type, "target": target}
    container = trigger.metadata.text("containerName")
    if container:
        metric = {"type": "ContainerResource", "containerResource": {**measured, "container": container}}
    else:
        metric = {"type": "Resource", "resource": measured}
    trigger.conversion.add_spec(metric)
    if older and older != kind:
        trigger.note_change("type", "is left out: metricType differs, and has precedence")


def cron(trigger: Trigger) -> None:
    """Adds a metric that equals `desiredReplicas` between `start` and `end`; raises Invalid."""
    replicas = trigger.whole_number("desiredReplicas", trigger.needed("desiredReplicas"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    trigger.external(trigger.source("cron", {**window, "replicas": replicas}), "1")


# Converts KEDA's trigger `kubernetes-workload`.
#
# Source: KEDA 2.21, "Kubernetes Workload"; kubernetes_workload_scaler.go.


def kubernetes_workload(trigger: Trigger) -> None:
    """Adds the number of pods, or of their nodes; raises Invalid."""
    text = trigger.needed("podSelector")
    try:
        parsed = selectors.parse(text)
    except SelectorError as error:
        raise trigger.invalid("podSelector", text, str(error)) from None
    value, activation = trigger.target("value"), trigger.number("activationValue")
    selector = _selector(parsed)
    if not selector:
        reason = "a selector of a metric has =, !=, in, notin and the existence of labels, one of them at least"
        trigger.note_loss("podSelector", f'"{text}" is not carried over, so neither is the trigger: {reason}')
        return
    metric = "workload_nodes" if trigger.metadata.truth("groupByNode") else "workload_pods"
    source = ConvertedSource(path=trigger.path, adapter="kubernetes-workload", metric=metric)
    trigger.external(source, value, activation, selector)


def _selector(parsed: Selector) -> dict[str, Any]:
    """Returns the LabelSelector; empty for one of everything, and for one that it cannot express."""
    try:
        found: dict[str, Any] = v2.to_builtins(selectors.expressed(parsed))
    except SelectorError:
        return {}
    return found


# Converts KEDA's triggers `external` and `external-push` to hpad's adapter `keda-external`.
#
# Source: KEDA 2.21, "External" and "External Push"; external_scaler.go.

_OWN: Final = ("scalerAddress", "enableTLS", "unsafeSsl")
_SECRET: Final = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)
_UNKNOWN_TARGET: Final = "1"


def external(trigger: Trigger) -> None:
    """Adds the only metric of the scaler; raises Invalid.

    KEDA asks the scaler for the target. The HPA needs it, so it is paused until a person has written the target.
    """
    address = trigger.needed("scalerAddress")
    host = split_url(f"//{address.removeprefix('dns:///').removeprefix('passthrough:///')}").hostname
    if not host:
        raise trigger.invalid("scalerAddress", address, "must be of the form host:port")
    metric = {"metadata": _metadata(trigger, host), "name": trigger.owner}
    if not trigger.to_zero or trigger.in_formula:
        metric["inactive"] = "value"  # KEDA scales by IsActive to and from zero only, and a formula has a threshold
    source = trigger.source("keda-external", metric, host, _settings(trigger, address))
    trigger.external(source, _UNKNOWN_TARGET)
    if trigger.type == "external-push":
        text = f"is carried over as external: hpad asks once per period ({controls.SYNC_PERIOD}: 1s in short ones)"
        trigger.conversion.note_change(f"{trigger.path}.type", text)
    if not trigger.in_formula:
        trigger.conversion.own[controls.MODE] = controls.PAUSED
        trigger.conversion.note_loss(
            f"{trigger.path}.type",
            f"the target of {source.metric} is not in the trigger: the scaler has it (GetMetricSpec). Write it "
            f"into the HPA in place of {_UNKNOWN_TARGET}, and remove {controls.MODE}: {controls.PAUSED}",
        )


def _settings(trigger: Trigger, address: str) -> dict[str, Any]:
    files = trigger.file_settings(caCert="ca", tlsClientCert="cert", tlsClientKey="key")
    settings: dict[str, Any] = {"address": address, **files}
    if files or trigger.metadata.truth("enableTLS"):
        settings |= {"tls": True, **trigger.insecure()}
    return settings


def _metadata(trigger: Trigger, host: str) -> dict[str, Any]:
    """Returns what is sent to the scaler: all metadata but the address, which hpad adds itself."""
    found = {name: _value(trigger, name, host) for name in trigger.metadata if name != "scalerAddress"}
    return {name: value for name, value in found.items() if value != ""}


def _value(trigger: Trigger, name: str, host: str) -> str | dict[str, str]:
    """Returns the value that is sent for an entry. KEDA sends the value of a variable under the name of its entry."""
    if not name.endswith(FROM_ENV):
        text = trigger.metadata.text(name)
        return text if name in _OWN or not _SECRET.search(name) else _secret(trigger, name, host)
    parameter = name.removesuffix(FROM_ENV)
    if file := trigger.file(parameter, f"metadata.{name}.file"):
        return {"file": file}
    text = trigger.text(parameter)
    return _secret(trigger, name, host) if text and _SECRET.search(name) else text


def _secret(trigger: Trigger, name: str, host: str) -> dict[str, str]:
    """Returns the variable of hpad that takes the place of a text that looks like a secret."""
    return {"env": trigger.variable_of(trigger.metadata.at(name), host, re.sub(r"\W", "_", name))}
