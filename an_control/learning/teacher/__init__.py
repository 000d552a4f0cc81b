"""Teachers: policies that a student imitates, and their training by reinforcement learning."""
