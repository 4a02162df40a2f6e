"""Numbers from documents that HTTP servers publish: JSON, XML, YAML, or the text format of Prometheus."""

from hpad_adapters.http_json.adapter import HttpJson as HttpJson
