"""External metrics from the consumers and streams of NATS JetStream, by the monitoring endpoint of its servers."""

from hpad_adapters.nats_jetstream.adapter import NatsJetStream as NatsJetStream
