"""Shared infrastructure: arrays, memory, threads, progress, files, validation and compiled loops."""
