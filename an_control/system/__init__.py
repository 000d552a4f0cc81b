"""Support for processes: files, signals, children, threads, priority, cache of compiled code."""
