"""DAgger in compiled code, for environments that offer compiled functions."""
