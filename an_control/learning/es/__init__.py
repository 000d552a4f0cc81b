"""Search for a policy by its return alone: CMA-ES and PGPE."""
