"""Converts KEDA's triggers `external` and `external-push` to hpad's adapter `keda-external`.

Source: KEDA 2.21, "External" and "External Push"; external_scaler.go.
"""

import re
from typing import Any, Final

from hpad.engine import controls
from hpad.manifests.keda.fields import split_url
from hpad.manifests.keda.trigger import FROM_ENV, Trigger

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
        settings["tls"] = True
        if trigger.metadata.truth("unsafeSsl"):
            settings["insecure"] = True
    else:
        trigger.note_unneeded({"unsafeSsl": "it has an effect with TLS only"})
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
