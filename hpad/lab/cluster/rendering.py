"""Content negotiation: objects are rendered whole, as a meta.k8s.io/v1 Table, or as PartialObjectMetadata.

`kubectl get` requests Tables; `columns` defines their columns and cells.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpad.lab.cluster import admission, columns, errors, paths, reads
from hpad.lab.cluster.columns import Column
from hpad.lab.cluster.resources import Object, Resource

_JSON_TYPES = ("application/json", "application/*", "*/*", "application/yaml")
_NOT_ACCEPTABLE = (
    "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)


def form(accept: str) -> str:
    """Returns `Table`, `PartialObjectMetadata`, or `""` for whole objects; raises ApiError 406 without a JSON type."""
    if not accept:
        return ""
    for part in accept.split(","):
        media, *parameters = (each.strip() for each in part.split(";"))
        if media in _JSON_TYPES:
            kind = dict(each.partition("=")[::2] for each in parameters).get("as", "")
            return kind.removesuffix("List")
    raise errors.ApiError(406, "NotAcceptable", _NOT_ACCEPTABLE, details={})


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders stored objects for one request."""

    address: paths.Address
    form: str
    include: str
    now: Callable[[], datetime]

    def one(self, obj: Object) -> Object:
        if self.form == "Table":
            version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return _table(self.address.resource, [obj], version, self.now(), self.include)
        if self.form:
            return _partial(obj)
        return admission.present(self.address.resource, obj, self.address.version)

    def many(self, page: reads.Page) -> Object:
        if self.form == "Table":
            return _table(self.address.resource, page.items, page.metadata, self.now(), self.include)
        if self.form:
            items = [_partial(obj) for obj in page.items] or None
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return {**head, "metadata": page.metadata, "items": items}
        return reads.render(self.address, page)

    def event(self, event: Object, *, first: bool) -> Object:
        """Renders a watch event. Only the first Table of a stream carries the column definitions."""
        obj = event["object"]
        if not self.form or event["type"] == "ERROR":
            return event
        if self.form != "Table":
            return {**event, "object": _partial(obj)}
        rows = [] if event["type"] == "BOOKMARK" else [obj]
        shown = _table(self.address.resource, rows, obj["metadata"], self.now(), self.include)
        shown["metadata"] = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return {**event, "object": shown if first else {**shown, "columnDefinitions": None}}


def _table(
    resource: Resource, objects: Iterable[Object], metadata: Mapping[str, Any], now: datetime, include: str = ""
) -> Object:
    """Returns a Table; `include` is the query's includeObject: Metadata (default), Object or None."""
    shown = columns.of(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": [_definition(each) for each in shown],
        "rows": [_row(shown, obj, now, include) for obj in objects],
    }


def _definition(column: Column) -> Object:
    form = "name" if column.name == "Name" else ""
    return {"name": column.name, "type": column.type, "format": form, "priority": int(column.wide)}


def _row(shown: Iterable[Column], obj: Object, now: datetime, include: str) -> Object:
    cells = [each.cell(obj, now) if each.timed else each.cell(obj) for each in shown]
    return {"cells": cells, "object": None if include == "None" else obj if include == "Object" else _partial(obj)}


def _partial(obj: Object) -> Object:
    """Returns the PartialObjectMetadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
