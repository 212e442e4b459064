"""What every room stands on: arrays, memory, threads, progress, files, validation."""
