"""Export of fitted models to ONNX."""
