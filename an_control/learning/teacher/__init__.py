"""Teachers: what a student imitates."""
