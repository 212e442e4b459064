"""Data read in batches: arrays in memory and on disk, files, and iterables of batches."""

from gramless.streaming.stream import Stream, StreamBatch, is_stream_like

__all__ = ["Stream", "StreamBatch", "is_stream_like"]
