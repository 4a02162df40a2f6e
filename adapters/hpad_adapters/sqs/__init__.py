"""Messages in queues of Amazon SQS; needs the extra `sqs`."""

# "import X as X" makes a name part of this package (PEP 484), from which the entry point takes it.
from hpad_adapters.sqs.adapter import Sqs as Sqs
