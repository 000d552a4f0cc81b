"""The scrambler: reads all sensors of a robot and publishes disturbed readings on one topic."""
