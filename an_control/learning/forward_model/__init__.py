"""The monitor's networks: recording episodes around a rewiring, training, and validation."""
