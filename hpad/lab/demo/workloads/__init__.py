"""The programs that the demo's pods run; they start fast, with the standard library alone."""
