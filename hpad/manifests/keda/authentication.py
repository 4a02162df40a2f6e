"""Where the parameters of triggers are kept: TriggerAuthentications, and environment variables of targets.

No secret is read or written: a parameter becomes the path of a file, and a note says what to mount there.
Source: KEDA 2.21, "Authentication" and "Authentication providers"; pkg/scaling/resolver/scale_resolvers.go:
ResolveContainerEnv; Kubernetes API, Container v1.
"""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api.problem import Invalid, invalid, required
from hpad.manifests.keda.conversion import PLACEHOLDER
from hpad.manifests.keda.fields import API_VERSION, Fields, Note

WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "Rollout")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Where one parameter of a trigger is kept.

    place: for people, such as `key "pass" of Secret shop/rabbit`. file: the path at which hpad reads it, "" where the
    text is written in an object. mounts: a Secret or ConfigMap holds it, so that it can be mounted as that file.
    value: the text itself, where it is no Secret's; held: the places of its parts that are not known, for which the
    placeholder stands. variable, container: of the target, still to be looked up.
    """

    place: str
    file: str = ""
    mounts: bool = False
    value: str | None = None
    held: tuple[str, ...] = ()
    variable: str = ""
    container: str = ""


class Objects:
    """The workloads and ConfigMaps among documents. `folder`: of the files in which hpad reads secrets."""

    def __init__(self, values: Iterable[Any], folder: str) -> None:
        self._folder = folder
        self._workloads: dict[tuple[str, str, str], list[Any]] = {}
        self._config_maps: dict[tuple[str, str], Mapping[str, Any]] = {}
        for value in values:
            if isinstance(value, dict) and isinstance(value.get("metadata"), dict):
                self._add(value, value["metadata"])

    def _add(self, value: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        kind, name = value.get("kind"), str(metadata.get("name"))
        namespace = str(metadata.get("namespace") or "default")
        if kind in WORKLOADS:
            containers = _within(value, "spec", "template", "spec").get("containers")
            self._workloads[str(kind), namespace, name] = containers if isinstance(containers, list) else []
        elif kind == "ConfigMap" and isinstance(value.get("data"), dict):
            self._config_maps[namespace, name] = value["data"]

    def path(self, *parts: str) -> str:
        """Returns the path of a file in the folder; no name leads out of it."""
        steps = (step for part in parts for step in part.split("/"))
        return posixpath.join(self._folder, *(step for step in steps if step not in ("", ".", "..")))

    def secret(self, namespace: str, name: str, key: str) -> Reference:
        """Returns the reference to a key of a Secret."""
        place = f'key "{key}" of Secret {namespace}/{name}'
        return Reference(place=place, file=self.path(namespace, name, key), mounts=True)

    def config_map(self, namespace: str, name: str, key: str) -> Reference:
        """Returns the reference to a key of a ConfigMap, with its text if the ConfigMap is known."""
        place, found = f'key "{key}" of ConfigMap {namespace}/{name}', self._config_maps.get((namespace, name), {})
        text = ("" if found[key] is None else str(found[key])) if key in found else None
        return Reference(place=place, file=self.path(namespace, name, key), mounts=True, value=text)

    def variable(self, target: tuple[str, str, str], container: str, name: str) -> Reference:
        """Returns the reference to a variable of the target's container: where the workload takes it from, if known.

        `target`: kind, namespace, name. `container` "" is the first one.
        """
        place = _place_of(name)
        if target not in self._workloads:
            place += f", of {target[0]} {target[1]}/{target[2]}, which is not among the documents,"
        unknown = Reference(place=place)
        for each in self._workloads.get(target, []):
            if isinstance(each, dict) and (not container or each.get("name") == container):
                return self._of_container(target[1], each, name) or unknown
        return unknown

    def _of_container(self, namespace: str, container: Mapping[str, Any], name: str) -> Reference | None:
        listed, known = container.get("env"), dict[str, Reference | None]()

        def find(name: str) -> Reference | None:
            return known[name] if name in known else self._of_whole(namespace, container, name)

        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict):
                known[str(entry.get("name"))] = self._of_entry(namespace, entry, find)
        return find(name)

    def _of_whole(self, namespace: str, container: Mapping[str, Any], name: str) -> Reference | None:
        """Returns the reference to a key of the Secret or ConfigMap whose keys all are variables."""
        held = container.get("envFrom")
        whole = [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []
        if len(whole) != 1:
            return None  # which of several holds it is known to the cluster alone
        key = name.removeprefix(str(whole[0].get("prefix") or ""))
        for kind, found in (("secretRef", self.secret), ("configMapRef", self.config_map)):
            if source := _within(whole[0], kind).get("name"):
                return found(namespace, str(source), key)
        return None

    def _of_entry(
        self, namespace: str, entry: Mapping[str, Any], find: Callable[[str], Reference | None]
    ) -> Reference | None:
        """Returns the reference to a variable; `find` returns that to one that stands before it."""
        if entry.get("value") is not None:
            return _written(str(entry.get("name")), str(entry["value"]), find)
        for kind, found in (("secretKeyRef", self.secret), ("configMapKeyRef", self.config_map)):
            source = _within(entry, "valueFrom", kind)
            if source.get("name") and source.get("key"):
                return found(namespace, str(source["name"]), str(source["key"]))
        return None


_NO_NAME: Final = re.compile(r"://|[\s=@]|\$\(")
_NAMED: Final = re.compile(r"\$(?:\$|\(([^()]+)\))")
_PASSWORD: Final = re.compile(r"(?<=:)[^:/@]*(?=@)|(?<=password=)\S*")
"""The password in a URL, or in words of a connection string. It is not copied from anywhere."""
_NO_ADDRESS: Final = re.compile(rf"^{PLACEHOLDER}|:{PLACEHOLDER}(?=/|$)")
"""A text whose beginning or port is not known tells nothing."""


_LONGEST: Final = 1 << 16
"""Characters of a text: each variable may be twice as long as the one before it."""


def _written(name: str, text: str, find: Callable[[str], Reference | None]) -> Reference:
    """Returns the text of a variable, in which "$(NAME)" stands for another one, and "$$" for "$".

    Source: Kubernetes API, EnvVar v1; KEDA 2.21, scale_resolvers.go: resolveEnvValue.
    """
    names = [each for each in _NAMED.findall(text) if each]
    parts = {each: find(each) or Reference(place=_place_of(each)) for each in names}
    if len(parts) == 1 and text == f"$({names[0]})":
        return parts[names[0]]
    places = (part.held if part.value is not None else (part.place,) for part in parts.values())
    held = tuple(dict.fromkeys(itertools.chain.from_iterable(places)))
    if sum(len(_text_of(parts[each])) for each in names) <= _LONGEST:
        text = _NAMED.sub(lambda match: _text_of(parts[match[1]]) if match[1] else "$", text)
        if not _NO_ADDRESS.search(text):
            held = held if PLACEHOLDER in _PASSWORD.sub("", text) else ()
            return Reference(place=_place_of(name), value=text, held=held)
    return Reference(place=f"{_place_of(name)}, with {' and '.join(held or parts)},")


def _text_of(part: Reference) -> str:
    return PLACEHOLDER if part.value is None else part.value


def name_fault(name: str) -> str:
    """Returns what is wrong with the name of a variable; "" for nothing. What is no name may be a password.

    Names such as "RabbitMq:Host" are allowed (Kubernetes 1.30: RelaxedEnvironmentVariableValidation).
    """
    return "must be the name of a variable of the target's container" if _NO_NAME.search(name) else ""


def _place_of(variable: str) -> str:
    return f'the variable "{variable}" of the target\'s container'


def _within(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Returns the object at a path, empty where there is none."""
    for name in names:
        found = value.get(name)
        value = found if isinstance(found, dict) else {}
    return value


TRIGGER: Final = "TriggerAuthentication"
CLUSTER: Final = "ClusterTriggerAuthentication"
FOLDER: Final = "/etc/hpad/secrets"
"""The folder of the files with secrets, unless another one is given."""
KEDA_NAMESPACE: Final = "keda"
"""Where KEDA reads the Secrets of a ClusterTriggerAuthentication by default (KEDA_CLUSTER_OBJECT_NAMESPACE)."""
_SYNC: Final = "write it there, for instance with External Secrets Operator and a mounted Secret"
_STORES: Final = {
    "hashiCorpVault": ("path", "a secret of HashiCorp Vault"),
    "azureKeyVault": ("name", "a secret of Azure Key Vault"),
    "gcpSecretManager": ("id", "a secret of Google Secret Manager"),
    "awsSecretManager": ("name", "a secret of AWS Secrets Manager"),
}
"""Stores of secrets: the field with the secret's name, and what it is."""


class OAuth2Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The client credentials grant of a TriggerAuthentication, with the file of the client's secret."""

    token_url: str
    client_id: str
    secret: Reference
    scopes: tuple[str, ...] = ()
    params: Mapping[str, str] = {}


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """A TriggerAuthentication or ClusterTriggerAuthentication.

    identity: kind and name. parameters: by the name that the trigger knows.
    notes: on fields of the object itself. missing: some of it is not known, as it is not among the documents.
    """

    identity: str
    missing: bool = False
    parameters: Mapping[str, Reference] = {}
    oauth2: OAuth2Grant | None = None
    notes: tuple[Note, ...] = ()


Key = tuple[str, str, str]
"""Kind, namespace ("" for an object of the cluster) and name."""


class Known(msgspec.Struct, frozen=True):
    """The objects that ScaledObjects refer to.

    errors: TriggerAuthentications that cannot be read. used: the keys of those that a trigger has referred to.
    """

    objects: Objects
    authentications: dict[Key, Authentication] = {}
    errors: dict[Key, Invalid] = {}
    used: set[Key] = set()


def is_authentication(value: Any) -> bool:
    """Returns whether a document is a TriggerAuthentication or a ClusterTriggerAuthentication."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind in (TRIGGER, CLUSTER) and value.get("apiVersion") == API_VERSION


def key_of(value: Mapping[str, Any]) -> Key:
    """Returns kind, namespace and name of a TriggerAuthentication."""
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kind = str(value.get("kind"))
    namespace = "" if kind == CLUSTER else str(metadata.get("namespace") or "default")
    return kind, namespace, str(metadata.get("name"))


def collect(values: Iterable[Any], folder: str = FOLDER) -> Known:
    """Returns the objects of documents that ScaledObjects may refer to. Never raises."""
    values = list(values)
    known = Known(Objects(values, folder))
    for value in values:
        if is_authentication(value):
            try:
                known.authentications[key_of(value)] = _read(value, known.objects)
            except Invalid as error:
                known.errors[key_of(value)] = error
    return known


def _read(value: Mapping[str, Any], objects: Objects) -> Authentication:
    kind, own, name = key_of(value)
    fields = Fields(value)
    reader = _Reader(fields.object("spec"), own or KEDA_NAMESPACE, objects)
    for each in ("apiVersion", "kind", "metadata", "status"):
        fields.get(each)
    parameters = dict(reader.parameters())
    file = reader.file()
    oauth2 = reader.oauth2()
    reader.note_pod_identity()
    notes = [*reader.notes, *(Note(path, "is not carried over") for path in fields.unread())]
    return Authentication(
        identity=f'{kind} "{name}"',
        missing=bool(file),
        parameters=parameters,
        oauth2=oauth2,
        notes=tuple(notes),
    )


class _Reader:
    """Reads the spec of one TriggerAuthentication. Raises Invalid for one that KEDA would refuse as well."""

    def __init__(self, spec: Fields, namespace: str, objects: Objects) -> None:
        self._spec, self._namespace, self._objects = spec, namespace, objects
        self.notes: list[Note] = []

    def parameters(self) -> Iterator[tuple[str, Reference]]:
        """Yields each parameter with its place."""
        for entry in self._spec.objects("secretTargetRef"):
            yield _needed(entry, "parameter"), self._of_secret(entry)
        for entry in self._spec.objects("configMapTargetRef"):
            yield _needed(entry, "parameter"), self._of_config_map(entry)
        for entry in self._spec.objects("env"):
            name = _needed(entry, "name")
            if fault := name_fault(name):
                raise Invalid(invalid(entry.at("name"), "…", fault))
            variable = Reference(place=_place_of(name), variable=name, container=entry.text("containerName"))
            yield _needed(entry, "parameter"), variable
        for entry in self._spec.objects("boundServiceAccountToken"):
            name = _needed(entry, "serviceAccountName")
            place = f"a token of ServiceAccount {self._namespace}/{name}"
            yield self._unheld(entry, place, "token", name)
        for store in _STORES:
            yield from self._stored(store)

    def _of_secret(self, entry: Fields) -> Reference:
        return self._objects.secret(self._namespace, _needed(entry, "name"), _needed(entry, "key"))

    def _of_config_map(self, entry: Fields) -> Reference:
        return self._objects.config_map(self._namespace, _needed(entry, "name"), _needed(entry, "key"))

    def _unheld(self, entry: Fields, place: str, *parts: str) -> tuple[str, Reference]:
        """Returns a parameter that no Secret holds, with a note on it."""
        reference = Reference(place=place, file=self._objects.path(self._namespace, *parts))
        parameter = _needed(entry, "parameter")
        text = f'"{parameter}" ({place}) is not read by hpad: {_SYNC}: {reference.file}'
        self.notes.append(Note(entry.at("parameter"), text))
        return parameter, reference

    def _stored(self, store: str) -> Iterator[tuple[str, Reference]]:
        if store not in self._spec:
            return
        fields = self._spec.object(store)
        name, kind = _STORES[store]
        for entry in fields.objects("secrets"):
            place, key = _needed(entry, name), entry.text("key") or entry.text("secretKey")
            of = f'key "{key}" of {kind}' if key else kind
            yield self._unheld(entry, f'{of}, "{place}"', store, place, key)
            entry.skip()
        fields.skip()  # how KEDA logs in to the store

    def file(self) -> str:
        """Returns the file of the KEDA operator whose parameters are not known, "" for none."""
        path = self._spec.text("filePath")
        if path:
            text = f'"{path}" is a file of the KEDA operator: write the parameters in it into the source'
            self.notes.append(Note(self._spec.at("filePath"), text))
        return path

    def oauth2(self) -> OAuth2Grant | None:
        """Returns the OAuth2 grant; None where there is none. Raises Invalid."""
        if "oauth2" not in self._spec:
            return None
        fields = self._spec.object("oauth2")
        fields.text("type")  # clientCredentials is the only one
        held = fields.object("clientSecret").object("valueFrom").object("secretKeyRef")
        scopes, params = fields.get("scopes", []), fields.object("tokenUrlParams")
        return OAuth2Grant(
            token_url=_needed(fields, "tokenUrl"),
            client_id=_needed(fields, "clientId"),
            secret=self._of_secret(held),
            scopes=tuple(map(str, scopes)) if isinstance(scopes, list) else (),
            params={name: params.text(name) for name in params},
        )

    def note_pod_identity(self) -> None:
        """Notes an identity of the pod that hpad does not have."""
        fields = self._spec.object("podIdentity")
        provider = fields.text("provider") or "none"
        fields.skip()
        if provider in ("none", "aws", "aws-eks"):
            if "roleArn" in fields:
                text = "is not carried over: hpad takes the role of its own ServiceAccount or of its environment"
                self.notes.append(Note(fields.at("roleArn"), text))
            return
        text = f"{provider} is not carried over: hpad has no identity of that provider; use a user with a password"
        self.notes.append(Note(fields.at("provider"), text))


def _needed(entry: Fields, name: str) -> str:
    text = entry.text(name)
    if not text:
        raise Invalid(required(entry.at(name), "KEDA needs it"))
    return text
