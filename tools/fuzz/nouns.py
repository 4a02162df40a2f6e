"""Texts and documents: quantities, selectors, names, HPAs, manifests, ScaledObjects, recordings, records, settings."""

import contextlib
import json
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpad import settings
from hpad.adapter import AdapterError
from hpad.api import conversion, decode, duration, metadata, selector, validation
from hpad.api import hpa as v2
from hpad.api.fields import FieldError
from hpad.api.metadata import Key
from hpad.api.quantity import Quantity, QuantityError, parse_milli
from hpad.engine import fallback_policy
from hpad.manifests import documents, hpas
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.conversion import ConversionError, settings_document
from hpad.recording import replay
from hpad.recording.format import RecordingError
from hpad.sources import plugins
from hpad.store import record

_BREAK = re.compile(rb"[\n\r]|\xc2\x85|\xe2\x80[\xa8\xa9]")
METRICS = ("cpu", "depth")
LABELS = ({}, {"app": "web"}, {"app": "web", "tier": "5"})


def quantity(data: bytes) -> None:
    """What parses prints as something that parses to the same, and its thousandths are those that decoders read."""
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
    """A canonical text is its own canonical text, and selects the same."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = selector.parse(text)
    except selector.SelectorError:
        return
    again = selector.parse(str(parsed))
    assert str(again) == str(parsed)
    assert [again.matches(labels) for labels in LABELS] == [parsed.matches(labels) for labels in LABELS]


def durations(data: bytes) -> None:
    """What is written reads back, to the microsecond."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = duration.parse(text)
    except ValueError:
        return
    assert abs((duration.parse(duration.write(parsed)) - parsed).total_seconds()) <= 1e-6 * max(
        1, abs(parsed.total_seconds()) * 1e-3
    )


def object_names(data: bytes) -> None:
    """A name that passes can be a part of a path and of a file's name."""
    name = data.decode("utf-8", "replace")
    if not metadata.subdomain_faults(name):
        assert name not in ("", ".", "..")
        assert len(name) <= 253
        assert not set(name) & set("/\\%\0\n<>&\"' \x1b")
        assert ".." not in name
    if not metadata.label_faults(name):
        assert not metadata.subdomain_faults(name)


def hpa(data: bytes) -> None:
    """Any version: errors name fields; what is read can be filled in, once, judged and written in each version."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    reading = decode.read(value)
    assert all(isinstance(error, FieldError) and error.message for error in reading.errors)
    assert reading.hpa is not None or reading.errors
    if reading.hpa is None:
        return
    fallback_policy.from_annotations(reading.hpa.metadata.annotations, METRICS)
    assert all(fallback_policy.annotation_errors(reading.hpa.metadata.annotations, METRICS).values())
    filled = v2.defaulted(reading.hpa)
    assert v2.defaulted(filled) == filled
    for error in validation.validate(filled, scale_to_zero=False):
        assert isinstance(error, FieldError)
    written = v2.to_builtins(reading.hpa)
    assert decode.decode(written) == reading.hpa
    json.dumps(v2.to_builtins(conversion.to_v1(reading.hpa)))
    json.dumps(written)


def manifests(data: bytes) -> None:
    """Every document has a line inside its file, and either a value or a fault."""
    lines = len(_BREAK.split(data)) + 1  # where a text ends too early
    for suffix in (".yaml", ".json", ".jsonl", ""):
        found = documents.parse(data, "file", suffix)
        for document in found:
            assert 1 <= document.line <= lines
            assert document.parsed or document.faults or b"null" in data or b"~" in data or document.prefix
            loaded = hpas.load(document) if hpas.is_hpa(document.value) else None
            for error in loaded.errors if loaded else document.faults:
                assert document.line_of(error.field) >= 1


def scaled_object(data: bytes) -> None:
    """Refused as KEDA would, or an HPA, faults of which name fields, and a configuration that can be written."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not scaledobject.is_scaled_object(value):
        return
    with contextlib.suppress(ConversionError):
        converted = scaledobject.convert(value)
        assert all(note.field and note.text for note in converted.notes)
        if converted.hpa is None:
            assert any(note.lost for note in converted.notes)
            return
        reading = decode.read(converted.hpa)
        assert reading.hpa is not None or reading.errors
        json.dumps([converted.hpa, settings_document([converted])])


def source(data: bytes) -> None:
    """The settings of a source in the schema of its adapter, or an error that names the source."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    for name in plugins.names():
        given = settings.SourceSettings(name="s", adapter=name, settings=value)
        refusal = f'source "s" (adapter "{name}"): '
        try:
            plugins.decode(given, plugins.adapter_class(name).Settings)
        except AdapterError as error:
            refusal = error.message
        assert refusal.startswith(f'source "s" (adapter "{name}"): ')


def scenario(data: bytes) -> None:
    """What can be replayed is replayed; what cannot has an error of its own."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    with contextlib.suppress(RecordingError):
        json.dumps(replay.replay(value))


def recording(data: bytes) -> None:
    """A file of recordings: scenarios, or ReplayError."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(RecordingError):
            for _, value in replay.read(file.name):
                assert isinstance(value, dict)


def remembered(data: bytes) -> None:
    """A record, whatever its checksum says: a memory that reads back the same, or Undecodable."""
    key = Key("shop", "web")
    body = data[5:]
    for whole in (data, bytes((record.FORMAT,)) + zlib.crc32(body).to_bytes(4, "big") + body):
        with contextlib.suppress(record.Undecodable):
            memory = record.decode(key, whole)
            assert msgspec.structs.replace(memory, last=None) == record.decode(key, record.encode(key, memory))


def configuration(data: bytes) -> None:
    """Settings, or SettingsError."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(settings.SettingsError):
            found: Any = settings.load(Path(file.name), {}, {})
            assert isinstance(found, settings.Settings)
