"""Plain counters and histograms are exported as those of prometheus_client are."""

import prometheus_client
import pytest
from prometheus_client import registry

from hpad.telemetry.series import SeriesFactory

BOUNDS = (0.01, 0.5, 1.0, 2.5, 60.0)


@pytest.fixture
def make():
    prometheus_client.disable_created_metrics()
    return SeriesFactory(registry.CollectorRegistry())


@pytest.fixture
def reference():
    return SeriesFactory(registry.CollectorRegistry())


def text(make):
    return prometheus_client.generate_latest(make.registry).decode()


@pytest.mark.parametrize("amount", [-1.0, 0.0, 0.01, 0.010001, 0.5, 2.4, 60.0, 60.1, 1e9])
def test_an_observation_falls_into_the_bucket_of_the_next_bound(make, reference, amount):
    make.histograms("hpad_x_seconds", "Text", bounds=BOUNDS).of().observe(amount)
    prometheus_client.Histogram("hpad_x_seconds", "Text", registry=reference.registry, buckets=BOUNDS).observe(amount)
    assert text(make) == text(reference)
    assert 'le="+Inf"} 1.0' in text(make)


def test_each_combination_of_label_values_has_a_histogram_of_its_own(make, reference):
    plain = make.histograms("hpad_x_seconds", "Text", ["a", "b"], BOUNDS)
    labels = ["a", "b"]
    other = prometheus_client.Histogram("hpad_x_seconds", "Text", labels, registry=reference.registry, buckets=BOUNDS)
    plain.of("idle", "-")
    other.labels("idle", "-")
    for number in range(40):
        labels = str(number % 3), 'odd"\\\n'
        plain.of(*labels).observe(number / 7)
        other.labels(*labels).observe(number / 7)
    assert text(make) == text(reference)
    assert text(make).count("hpad_x_seconds_count") == 4


def test_counters_begin_at_zero_and_count_by_label_values(make, reference):
    plain = make.counts("hpad_x", "Text", ["code"])
    other = prometheus_client.Counter("hpad_x", "Text", ["code"], registry=reference.registry)
    plain.create("200")
    other.labels("200")
    assert text(make) == text(reference)
    assert 'hpad_x_total{code="200"} 0.0' in text(make)
    plain.count("200")
    plain.count("500")
    plain.create("500")
    other.labels("200").inc()
    other.labels("500").inc()
    assert text(make) == text(reference)


def test_counters_without_labels(make, reference):
    make.counts("hpad_x", "Text")
    prometheus_client.Counter("hpad_x", "Text", registry=reference.registry)
    assert text(make) == text(reference)
