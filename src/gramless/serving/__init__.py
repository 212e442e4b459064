"""Small web servers for one machine: pages and scores over HTTP, bound to the loopback interface."""

from gramless.serving.drawing import drawing_app
from gramless.serving.server import serve

__all__ = ["drawing_app", "serve"]
