"""Data that comes in batches: arrays on disk, files, iterables; one border for all of them."""

from gramless.streaming.stream import Batch, Stream, is_stream_like

__all__ = ["Batch", "Stream", "is_stream_like"]
