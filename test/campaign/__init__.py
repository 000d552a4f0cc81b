"""The fault campaign: breaks what feeds and surrounds the policy node, and checks its commands."""
