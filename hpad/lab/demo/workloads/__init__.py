"""The programs of the demo's pods. They use the standard library only, to start fast."""
