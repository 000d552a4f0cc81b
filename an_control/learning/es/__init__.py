"""Search for a policy by its return: CMA-ES and PGPE."""
