"""Search for a policy by an evolution strategy, which needs only the returns of episodes."""
