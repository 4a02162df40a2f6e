"""From the configuration to a sample: the gatherer, the installed adapter and a real broker."""

import pytest

from hpad import clock as clocks
from hpad import settings
from hpad.adapter import AdapterError, ExternalSample, Query
from hpad.api import selector
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts


@pytest.mark.rabbitmq
async def test_eighty_waiting_messages_are_a_sample_of_eighty(broker):
    queue = await broker.declare()
    await broker.publish(queue, 80)
    environment = {"HPAD_RABBITMQ_URL": broker.url, "HPAD_RABBITMQ_USERNAME": "monitor"}
    [source] = settings.load(None, environment, {}).sources
    source.settings["password"] = "m0nitor:pw/ü"
    gatherer = Gatherer([source], contexts=Contexts(clocks.SystemClock()))
    await gatherer.start()
    try:
        query = Query(
            type="External", name="queue_messages", namespace="default", selector=selector.parse(f"queue={queue}")
        )
        missing = Query(
            type="External", name="queue_messages", namespace="default", selector=selector.parse("queue=nowhere")
        )
        sample, error = await gatherer.gather([query, missing], deadline=10)
    finally:
        await gatherer.aclose()
    assert isinstance(sample, ExternalSample)
    assert sample.values == (80_000,)
    assert error == AdapterError(f'queue "nowhere" does not exist in vhost "/" of rabbitmq at {broker.url}', "spec")
