"""What the monitor needs: episodes around a rewiring, and the networks learned from them."""
