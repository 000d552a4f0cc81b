"""Which memory learns to remember: the recurrences of a policy on tasks from the literature."""
