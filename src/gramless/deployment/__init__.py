"""Fitted models outside a training session: files, ONNX, compiled and compressed models, the HTTP server."""
