"""One trigger of a ScaledObject: its metadata, its authentication, and the metric that it becomes."""

import difflib
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hpad.api import duration
from hpad.api.problem import Invalid, invalid, required
from hpad.api.quantity import QuantityError, parse_milli
from hpad.manifests.keda.authentication import Authentication, Reference, name_fault
from hpad.manifests.keda.conversion import PLACEHOLDER, Conversion, ConvertedSource
from hpad.manifests.keda.fields import Fields

_NO_AUTHENTICATION: Final = Authentication(identity="")
_AVERAGE: Final = "AverageValue"
_SIMILAR: Final = 0.7
"""How much of its letters an entry shares with the one that is missing; apiHost, of KEDA 1, has the most of host."""
FROM_ENV: Final = "FromEnv"
"""The end of an entry that names a variable of the target's container."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, and the conversion that it adds to.

    path: its field, such as `spec.triggers[0]`. metric: the name of its metric in the HPA. variable: looks up a
    variable of the target's container (name, container). taken: the parameters of the authentication that were read.
    owner: the name of the ScaledObject. in_formula: scaling modifiers have the target, in place of the triggers.
    polling: KEDA's polling interval in seconds. to_zero: the target may sleep.
    """

    path: str
    metric: str
    type: str
    metadata: Fields
    conversion: Conversion
    metric_type: str = ""
    authentication: Authentication = _NO_AUTHENTICATION
    variable: Callable[[str, str], Reference]
    namespace: str = ""
    owner: str = ""
    in_formula: bool = False
    polling: int = 30
    to_zero: bool = False
    taken: set[str] = set()

    def invalid(self, name: str, value: Any, detail: str) -> Invalid:
        """Returns the error for an invalid parameter, at the field that sets it."""
        return Invalid(invalid(self.field_of(name), value, detail))

    def note_loss(self, name: str, text: str) -> None:
        """Notes an entry of the metadata whose effect the result lacks."""
        self.conversion.note_loss(self.metadata.at(name), text)

    def note_change(self, name: str, text: str) -> None:
        """Notes an entry of the metadata that is carried over in another way, or that has no effect."""
        self.conversion.note_change(self.metadata.at(name), text)

    # Texts: from the metadata, from a TriggerAuthentication, or from a variable of the target's container.

    def reference(self, name: str) -> Reference | None:
        """Returns where a parameter is kept that the metadata do not have; None where it is not set."""
        self.taken.add(name)
        found = self.authentication.parameters.get(name)
        if found is not None and found.variable:
            found = self.variable(found.variable, found.container)
        variable = self.metadata.text(name + FROM_ENV)
        if variable and (fault := name_fault(variable)):
            raise Invalid(invalid(self.metadata.at(name + FROM_ENV), "…", f"{fault}; a value itself is {name}"))
        return self.variable(variable, "") if found is None and variable else found

    def text(self, name: str, default: str = "") -> str:
        """Returns a parameter of the metadata, of a ConfigMap or a variable; the default if it is absent."""
        found = None if self.metadata.text(name) else self.reference(name)
        if found is not None and found.held:
            parts = " and ".join(found.held)
            self.conversion.note_loss(
                self.field_of(name), f"{PLACEHOLDER} stands for what {parts} holds: write it there"
            )
        return self.metadata.text(name) or ((found.value or "").strip() if found is not None else "") or default

    def required_text(self, name: str, example: str) -> str:
        """Returns a parameter as `text` does. One that is kept where hpad cannot read it is lost: gives the example.

        Raises Invalid if it is not set at all.
        """
        found = self.text(name) or self.unread(name, example)
        if not found and self.authentication.missing:
            self.note_loss(name, f"is not in the trigger: write it into the source, in place of {example}")
            return example
        if not found:
            raise self._missing(name)
        return found

    def _missing(self, name: str) -> Invalid:
        """Returns the error for a parameter that is not set, with the entry that was perhaps meant for it."""
        entries = {each.removesuffix(FROM_ENV).lower(): each for each in self.metadata.unread_names()}
        close = difflib.get_close_matches(name.lower(), entries, n=1, cutoff=_SIMILAR)
        hint = f' (did you mean it by "{entries[close[0]]}"?)' if close else ""
        return Invalid(required(self.metadata.at(name), f"a trigger of type {self.type} needs it{hint}"))

    def unread(self, name: str, example: str = PLACEHOLDER) -> str:
        """Returns the example for a parameter whose text is not known, and notes the loss; "" if it is not set."""
        found = None if self.text(name) else self.reference(name)
        if found is None:
            return ""
        self._note_held(name, found, f"write the {name} into the source, in place of {example}")
        return example

    def _note_held(self, name: str, found: Reference, instead: str) -> None:
        """Notes a parameter that is kept elsewhere, at the field that refers to it."""
        field, subject = self._field_of(name)
        self.conversion.note_loss(field, f"{subject}is not carried over: {found.place} holds it: {instead}")

    def _field_of(self, name: str) -> tuple[str, str]:
        """Returns the field that sets a parameter, and the beginning of a note on it."""
        if name not in self.metadata and name in self.authentication.parameters:
            return f"{self.path}.authenticationRef", f'"{name}" of {self.authentication.identity} '
        return self.metadata.at(name + FROM_ENV if name + FROM_ENV in self.metadata else name), ""

    def field_of(self, name: str) -> str:
        """Returns the field that sets a parameter."""
        return self._field_of(name)[0]

    def needed(self, name: str) -> str:
        """Returns a required entry. Raises Invalid if it is missing."""
        text = self.text(name)
        if not text:
            raise self._missing(name)
        return text

    def number(self, name: str, default: str = "") -> str:
        """Returns an entry that is a quantity, or the default if it is absent. Raises Invalid."""
        text = self.text(name, default)
        if not text:
            return text
        try:
            parse_milli(text)
        except QuantityError:
            raise self.invalid(name, text, "must be a number") from None
        return text

    def target(self, name: str, default: str = "") -> str:
        """Returns the target value of the metric, a number above 0. Raises Invalid.

        Where scaling modifiers have the target, triggers need none: it is 1 until they replace it.
        """
        text = self.number(name, default or ("1" if self.in_formula else ""))
        if not text:
            raise self._missing(name)
        if parse_milli(text) <= 0:
            raise self.invalid(name, text, "must be more than 0")
        return text

    def whole_number(self, name: str, text: str) -> int:
        """Returns the number in the text of an entry. Raises Invalid for anything but digits."""
        if not (text.isascii() and text.isdigit()):
            raise self.invalid(name, text, "must be a whole number")
        return int(text)

    def timeout(self, setting: str) -> dict[str, str]:
        """Returns the setting with the timeout in hpad's form, such as "3000ms"; empty if absent. Raises Invalid."""
        text = self.metadata.text("timeout")
        if not text:
            return {}
        if text.isascii() and text.isdigit() and int(text):
            return {setting: f"{int(text)}ms"}
        try:
            return {setting: duration.write(duration.parse(text))}
        except ValueError:
            raise self.invalid("timeout", text, "must be milliseconds, such as 3000") from None

    def insecure(self) -> dict[str, bool]:
        """Returns the setting that trusts any certificate; empty where the trigger does not."""
        return {"insecure": True} if self.metadata.truth("unsafeSsl") else {}

    # Secrets: never copied. A file or an environment variable of hpad takes their place.

    def file(self, name: str, setting: str) -> str:
        """Returns the file in which hpad reads a secret parameter, and notes what to mount there.

        Returns "" where the parameter is not set, or where no object is known to hold it (which is noted as lost).
        """
        found = self.reference(name)
        if found is None or not found.file:
            if found is not None and found.value is None:
                self._note_held(name, found, f"write a file with it into the source, as {setting}")
            return ""
        field, subject = self._field_of(name)
        if not found.mounts:
            self._note_held(name, found, f"write it into {found.file}, which the source reads as {setting}")
        else:
            text = f"{subject}is read from {found.file} ({setting}): mount {found.place} there"
            self.conversion.note_change(field, text)
        return found.file

    def file_settings(self, **settings: str) -> dict[str, str]:
        """Returns settings with files, by the parameter that each file holds: `ca="ca", cert="cert"`."""
        files = ((setting, self.file(name, setting)) for name, setting in settings.items())
        return {setting: file for setting, file in files if file}

    def tls_files(self) -> dict[str, Any]:
        """Returns the settings with the files of TLS."""
        files: dict[str, Any] = self.file_settings(ca="ca", cert="cert", key="key")
        password = self.file("keyPassword", "key_password.file")
        return files | ({"key_password": {"file": password}} if password else {})

    def leave_tls_files(self) -> None:
        """Notes that the files of TLS are left out, if there are any: where tls is not enabled they have no effect."""
        if any([self.reference(name) for name in ("ca", "cert", "key", "keyPassword")]):  # a list: each is looked at
            self.conversion.note_change(self.field_of("tls"), "ca, cert and key are left out: tls is not enabled")

    def variable_of(self, field: str, host: str, what: str = "password") -> str:
        """Returns the environment variable in which hpad reads a secret that stands in KEDA's objects.

        Notes at `field`, a path in the ScaledObject, that the secret is not copied.
        """
        variable = self._variable_name(host, what)
        self.conversion.note_change(field, f"the {what} is not copied: give it to hpad as {variable}")
        return variable

    def secret(self, name: str, setting: str, host: str, what: str = "password") -> dict[str, str]:
        """Returns the place of a secret parameter, as "file" or "env"; empty where it is not set.

        `setting` reads the file. A secret that no file is known for has a variable of hpad, which one note names.
        """
        found = self.reference(name)
        if found is not None and not found.file and found.value is None:
            variable = self._variable_name(host, what)
            self._note_held(name, found, f"give it to hpad as {variable}")
            return {"env": variable}
        if file := self.file(name, setting):
            return {"file": file}
        is_set = found is not None or self.text(name)
        return {"env": self.variable_of(self.field_of(name), host, what)} if is_set else {}

    def placeholder(self, name: str) -> str:
        """Returns the placeholder for a parameter that is nowhere, and notes the loss."""
        self.note_loss(name, f"is not in the trigger: write it into the source, in place of {PLACEHOLDER}")
        return PLACEHOLDER

    def credentials(
        self, host: str, of_url: str = "", field: str = "host", *, user: str = "username"
    ) -> dict[str, str]:
        """Returns username and the place of the password. `of_url`: the user in the URL of `field`, with a password."""
        name = self.text(user) or self.unread(user) or of_url
        settings = {"username": name} if name else {}
        if password := self.secret("password", "password_file", host):
            return settings | {f"password_{kind}": place for kind, place in password.items()}
        return settings | ({"password_env": self.variable_of(self.field_of(field), host)} if name else {})

    def note_trust(self, settings: Mapping[str, Any], others: str) -> None:
        """Notes that `others`, which the servers of the settings name, get no password without verified TLS."""
        tls = any(part.get("tls") for part in (settings, *settings.values()) if isinstance(part, Mapping))
        if not tls or settings.get("insecure"):
            text = f"hpad sends the password to {others} only if trusted_hosts of the source has them: see its page"
            self.conversion.note_change(self.path, text)

    def login(self, host: str, of_url: str = "", field: str = "host") -> dict[str, str]:
        """Returns the credentials, with a placeholder for the user of a password, which is noted as lost."""
        found = self.credentials(host, of_url, field)
        return {"username": self.placeholder("username"), **found} if found and "username" not in found else found

    def login_of_url(self, name: str, host: str) -> dict[str, str]:
        """Returns placeholders for the user and the password in a URL that hpad cannot read; empty where it can.

        KEDA's Secret has the whole URL, a source reads the password alone: from a file beside that of the URL.
        """
        if self.text(name):
            return {}
        found, field = self.reference(name), self.field_of(name)
        login = {"username": PLACEHOLDER}
        if found is None or not found.file:
            login["password_env"] = self.variable_of(field, host)
            return login
        login["password_file"] = posixpath.join(posixpath.dirname(found.file), "password")
        text = f"the {name} has user and password: write the user into the source, in place of {PLACEHOLDER}, and the "
        self.conversion.note_change(field, f"{text}password alone into {login['password_file']}")
        return login

    def oauth2(self) -> dict[str, Any]:
        """Returns the setting `oauth2` of the TriggerAuthentication; empty where it has none."""
        found = self.authentication.oauth2
        if found is None:
            return {}
        self.taken.add("oauth2")
        field = f"{self.path}.authenticationRef"
        text = f"the client's secret is read from {found.secret.file} (oauth2.client_secret_file): mount "
        self.conversion.note_change(field, f"{text}{found.secret.place} there")
        settings = {"token_url": found.token_url, "client_id": found.client_id, "client_secret_file": found.secret.file}
        more = {"scopes": list(found.scopes), "params": dict(found.params)}
        return {"oauth2": settings | {name: value for name, value in more.items() if value}}

    def _variable_name(self, host: str, what: str) -> str:
        """Returns the name of the environment variable of hpad that holds a secret of the host.

        Unknown hosts of several objects may be different ones.
        """
        of = f"{self.namespace}-{self.owner}" if PLACEHOLDER in host else host
        return "HPAD_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in f"{of}_{what}".upper())

    # Metrics.

    def source(self, adapter: str, query: Any, host: str = "", settings: Mapping[str, Any] = {}) -> ConvertedSource:
        """Returns the source whose entry and metric have the name of the trigger's metric."""
        return ConvertedSource(
            path=self.path,
            adapter=adapter,
            host=host,
            settings=settings,
            entry=self.metric,
            query=query,
            metric=self.metric,
        )

    def external(
        self, source: ConvertedSource, value: str, activation: str = "", selector: Mapping[str, Any] = {}
    ) -> None:
        """Adds the trigger's External metric and its source; raises Invalid for an invalid metricType.

        `selector`: of the metric, in place of the source's labels.
        """
        kind = self.metric_type or _AVERAGE
        if kind not in (_AVERAGE, "Value"):
            raise Invalid(invalid(f"{self.path}.metricType", kind, f"must be {_AVERAGE} or Value"))
        target = {"type": kind, "averageValue" if kind == _AVERAGE else "value": value}
        self._add(source, target, activation, selector)

    def average(self, source: ConvertedSource, value: str, activation: str) -> None:
        """Adds an External metric with a target per replica, whatever the metricType is."""
        self._add(source, {"type": _AVERAGE, "averageValue": value}, activation, {})

    def _add(
        self, source: ConvertedSource, target: dict[str, Any], activation: str, selector: Mapping[str, Any]
    ) -> None:
        metric: dict[str, Any] = {"name": source.metric}
        if selector or source.labels:
            metric["selector"] = dict(selector) or {"matchLabels": dict(source.labels)}
        index = self.conversion.add(metric, target, source)
        if activation and parse_milli(activation):
            self.conversion.activation[index] = activation
