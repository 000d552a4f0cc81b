"""The motion test: moves one actuator at a time, and finds the sensors that each moves."""
