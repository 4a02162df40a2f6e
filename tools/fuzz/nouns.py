"""Fuzz targets of texts and documents: quantities, selectors, HPAs, manifests, recordings, records, settings."""

import contextlib
import json
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from hpad import settings
from hpad.adapter import EXTERNAL, AdapterError, Query, QueryDefinition
from hpad.api import decode, duration, metadata, older, selector, validation
from hpad.api import hpa as v2
from hpad.api.metadata import Key
from hpad.api.problem import Invalid, Problem
from hpad.api.quantity import Quantity, QuantityError, parse_milli
from hpad.engine import addresses, annotations
from hpad.engine.spec import compiled_spec
from hpad.manifests import documents, hpas
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.conversion import settings_document
from hpad.records import replay
from hpad.records.format import RecordingError
from hpad.sources import plugins
from hpad.sources.offers import Offer
from hpad.sources.own_queries import OwnQueries
from hpad.store import record

_BREAK = re.compile(rb"[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9]")
LABELS = ({}, {"app": "web"}, {"app": "web", "tier": "5"})


def quantity(data: bytes) -> None:
    """A parsed quantity prints as an equal one, and the fast parser of decoders returns the same thousandths."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = Quantity.parse(text)
    except QuantityError:
        with pytest.raises(QuantityError):
            parse_milli(text)
        return
    assert Quantity.parse(str(parsed)) == parsed
    assert str(Quantity.parse(str(parsed))) == str(parsed)
    assert parse_milli(text) == parsed.milli()
    assert parsed.milli() >= parsed.value() * 1000 - 999 or parsed.sign < 0
    float(parsed)


def selectors(data: bytes) -> None:
    """The canonical text of a selector parses to a selector with the same text and the same matches."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = selector.parse(text)
    except selector.SelectorError:
        return
    again = selector.parse(str(parsed))
    assert str(again) == str(parsed)
    assert [again.matches(labels) for labels in LABELS] == [parsed.matches(labels) for labels in LABELS]


def durations(data: bytes) -> None:
    """A written duration parses to the same one, to the microsecond."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = duration.parse(text)
    except ValueError:
        return
    assert abs((duration.parse(duration.write(parsed)) - parsed).total_seconds()) <= 1e-6 * max(
        1, abs(parsed.total_seconds()) * 1e-3
    )


def object_names(data: bytes) -> None:
    """A valid name is safe in URLs and file names."""
    name = data.decode("utf-8", "replace")
    if not metadata.subdomain_faults(name):
        assert name not in ("", ".", "..")
        assert len(name) <= 253
        assert not set(name) & set("/\\%\0\n<>&\"' \x1b")
        assert ".." not in name
    if not metadata.label_faults(name):
        assert not metadata.subdomain_faults(name)


def hpa(data: bytes) -> None:
    """Errors of any version name fields; a decoded HPA can be defaulted, validated and written in each version."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    reading = decode.read(value)
    assert all(isinstance(error, Problem) and error.text for error in reading.errors)
    assert reading.hpa is not None or reading.errors
    if reading.hpa is None:
        return
    _annotations(reading.hpa)
    filled = v2.defaulted(reading.hpa)
    assert v2.defaulted(filled) == filled
    for error in validation.validate(filled, scale_to_zero=False):
        assert isinstance(error, Problem)
    written = v2.to_builtins(reading.hpa)
    assert decode.read(written) == decode.DecodedHpa(reading.hpa)
    json.dumps(v2.to_builtins(older.to_v1(reading.hpa)))
    json.dumps(written)


def _annotations(hpa: v2.HorizontalPodAutoscaler) -> None:
    """An annotation has an effect or an error; the canonical address of each metric stands for this metric alone."""
    found = annotations.PLAIN.of(hpa)
    assert all(error.text for error in found.errors)
    assert len(found.policies) in (0, len(hpa.spec.metrics))
    known = addresses.identities(compiled_spec(hpa).metrics)
    for index, address in enumerate(addresses.canonical(known)):
        policies = annotations.read({annotations.FALLBACK: f"{address}=hold"}, compiled_spec(hpa).metrics).policies
        assert [at for at, policy in enumerate(policies) if policy.fallback is not None] == [index]


def manifests(data: bytes) -> None:
    """Each document has a line inside its file, and a value or a fault."""
    lines = len(_BREAK.split(data)) + 1  # the error of an incomplete text is on the next line
    for suffix in (".yaml", ".json", ".jsonl", ""):
        found = documents.parse(data, "file", suffix)
        for document in found:
            assert 1 <= document.line <= lines
            assert document.parsed or document.faults or b"null" in data or b"~" in data or document.prefix
            loaded = hpas.load(document) if hpas.is_hpa(document.value) else None
            for error in loaded.errors if loaded else document.faults:
                assert document.line_of(error.path) >= 1


def scaled_object(data: bytes) -> None:
    """A ScaledObject is rejected, or converted to an HPA and settings that can be written."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not scaledobject.is_scaled_object(value):
        return
    with contextlib.suppress(Invalid):
        converted = scaledobject.convert(value)
        assert all(note.field and note.text for note in converted.notes)
        if converted.hpa is None:
            assert any(note.lost for note in converted.notes)
            return
        reading = decode.read(converted.hpa)
        assert reading.hpa is not None or reading.errors
        json.dumps([converted.hpa, settings_document([converted])])


def source(data: bytes) -> None:
    """The settings of a source are decoded, or give an error that names the source."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    for name in plugins.names():
        configured = settings.SourceSettings(name="s", adapter=name, settings=value)
        refusal = f'source "s" (adapter "{name}"): '
        try:
            plugins.decode(configured, plugins.adapter_class(name).Settings)
        except AdapterError as error:
            refusal = error.message
        assert refusal.startswith(f'source "s" (adapter "{name}"): ')


def scenario(data: bytes) -> None:
    """A scenario is replayed, or raises RecordingError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    with contextlib.suppress(RecordingError):
        json.dumps(replay.replay(value))


def recording(data: bytes) -> None:
    """A file of recordings has scenarios, or raises RecordingError."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(RecordingError):
            for _, value in replay.read(file.name):
                assert isinstance(value, dict)


def remembered(data: bytes) -> None:
    """A record, also with a corrected checksum, decodes to a memory that is encoded equally, or raises Undecodable."""
    key = Key("shop", "web")
    body = data[5:]
    for whole in (data, bytes((record.FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body):
        with contextlib.suppress(record.Undecodable):
            memory = record.decode(key, whole)
            assert memory == record.decode(key, record.encode(key, memory))


def configuration(data: bytes) -> None:
    """A settings file is loaded, or raises SettingsError."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(settings.SettingsError):
            found: Any = settings.load(Path(file.name), {}, {})
            assert isinstance(found, settings.Settings)


OPEN = ("prometheus", "http-json", "rabbitmq", "kafka", "nats-jetstream", "cron")
"""The adapters that take queries of Autoscalers."""


def own_queries(data: bytes) -> None:
    """The parameters of a query are refused with an error, or taken by the schema, for each adapter."""
    try:
        text = data.decode()
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return
    if not is_object:
        return
    schemas = {name: getattr(plugins.adapter_class(name), "QuerySchema", None) for name in OPEN}
    to_all = settings.OpenedQueries(namespaces=("*",))
    opened = {name: settings.SourceSettings(name=name, adapter=name, queries=to_all) for name in OPEN}
    sources = OwnQueries([Offer(settings=opened[name], query_schema=schemas[name]) for name in OPEN])
    for name in OPEN:
        definition = QueryDefinition(name, text)
        query = Query(type=EXTERNAL, namespace="shop", name="own", definition=definition)
        try:
            read = sources.handed(query, definition).definition
        except AdapterError as error:
            if error.blame != "spec" or not error.message:
                raise
        else:
            assert read is not None
            assert isinstance(read.metric, schemas[name])
