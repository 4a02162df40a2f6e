"""In which form a client gets what it asked for: the objects, a table of them, or their metadata."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from hpad.lab.cluster import admission, errors, paths, reads, tables
from hpad.lab.cluster.resources import Object

_OURS = ("application/json", "application/*", "*/*", "application/yaml")
_NOT_ACCEPTABLE = (
    "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)


def form(accept: str) -> str:
    """`Table`, `PartialObjectMetadata` or empty for whole objects; raises ApiError 406 when there is no JSON in it."""
    if not accept:
        return ""
    for part in accept.split(","):
        media, *parameters = (each.strip() for each in part.split(";"))
        if media in _OURS:
            wanted = dict(each.partition("=")[::2] for each in parameters).get("as", "")
            return wanted.removesuffix("List")
    raise errors.ApiError(406, "NotAcceptable", _NOT_ACCEPTABLE, details={})


@dataclass(frozen=True, slots=True)
class Answers:
    """Renders stored objects for one request."""

    address: paths.Address
    form: str
    include: str
    now: Callable[[], datetime]

    def one(self, obj: Object) -> Object:
        if self.form == "Table":
            version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return tables.table(self.address.resource, [obj], version, self.now(), self.include)
        if self.form:
            return tables.partial(obj)
        return admission.present(self.address.resource, obj, self.address.version)

    def many(self, page: reads.Page) -> Object:
        if self.form == "Table":
            return tables.table(self.address.resource, page.items, page.metadata, self.now(), self.include)
        if self.form:
            items = [tables.partial(obj) for obj in page.items] or None
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return {**head, "metadata": page.metadata, "items": items}
        return reads.render(self.address, page)

    def event(self, event: Object, *, first: bool) -> Object:
        """A watch event; of tables only the first one carries the columns."""
        obj = event["object"]
        if not self.form or event["type"] == "ERROR":
            return event
        if self.form != "Table":
            return {**event, "object": tables.partial(obj)}
        rows = [] if event["type"] == "BOOKMARK" else [obj]
        shown = tables.table(self.address.resource, rows, obj["metadata"], self.now(), self.include)
        shown["metadata"] = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return {**event, "object": shown if first else {**shown, "columnDefinitions": None}}
