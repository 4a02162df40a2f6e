"""Numbers from documents that HTTP servers publish: JSON, XML, YAML, or the text format of Prometheus."""

from hpad_adapters.http_json.adapter import HttpJson as HttpJson
from hpad_adapters.http_json.settings import HttpJsonSettings as HttpJsonSettings
from hpad_adapters.http_json.settings import Metric as Metric
