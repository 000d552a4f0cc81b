"""The scrambler, which reads all sensors of a robot and publishes disturbed readings on a topic."""
