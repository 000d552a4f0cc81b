"""Playing episodes: one at a time, in processes, with Dask, or many at once in compiled code."""
