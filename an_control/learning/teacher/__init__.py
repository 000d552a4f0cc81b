"""Teachers: policies that a student imitates, and how they are trained."""
