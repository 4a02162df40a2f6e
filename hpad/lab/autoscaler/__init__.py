"""The kind Autoscaler: its CustomResourceDefinition, made from the types of `hpad.api`.

`make docs` writes it to config/crd/autoscalers.hpad.io.yaml, and the embedded cluster serves it.
"""

from hpad.lab.autoscaler.definition import definition as definition
