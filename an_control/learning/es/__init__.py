"""Evolution strategies: search for a policy by its return alone."""
