"""Training of the identity monitor's networks, which predict, impute and identify channels."""
