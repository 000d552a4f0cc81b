"""DAgger for image patches."""
