"""What every process here needs: files, signals, children, threads, the compiled cache."""
