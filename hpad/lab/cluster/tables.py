"""Tables as `kubectl get` asks for them; `columns` has the columns and cells of the kinds."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from hpad.lab.cluster import columns
from hpad.lab.cluster.columns import Column
from hpad.lab.cluster.resources import Object, Resource


def table(
    resource: Resource, objects: Iterable[Object], metadata: Mapping[str, Any], now: datetime, include: str = ""
) -> Object:
    """A meta.k8s.io/v1 Table; `include` is the query's includeObject: Metadata (default), Object or None."""
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
    return {"cells": cells, "object": None if include == "None" else obj if include == "Object" else partial(obj)}


def partial(obj: Object) -> Object:
    """The metadata of an object and nothing else."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
