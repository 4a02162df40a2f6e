"""A decision as text: `decision` makes the lines, of the parts in `text`, which a short command loads alone."""
