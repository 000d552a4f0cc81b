"""Which memory learns to remember: the recurrences of a policy on tasks from the literature."""

TITLES = ("memory scores", "memory draws")
"""Of the tables that `an-control bench memory` writes."""
