"""A web server for tests that can behave badly: cut answers short, lie, disappear."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files:
    """Serves `contents` (path -> bytes) on a free port of this machine; a context manager."""

    def __init__(self, contents, *, cut_after=None, ranges=True):
        self.contents = contents
        self.cut_after = cut_after  # bytes after which the first answer of each path is cut
        self.ranges = ranges
        self.requests = []
        self._cut = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request):
        self.requests.append((request.path, request.headers.get("Range")))
        content = self.contents.get(request.path)
        if content is None:
            request.send_error(404)
            return
        start = 0
        tag = f'"{hash(content)}"'
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or "")
        if wanted and self.ranges and request.headers.get("If-Range") == tag:
            start = int(wanted.group(1))
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        body = content[start:]
        request.send_header("Content-Length", str(len(body)))
        request.send_header("ETag", tag)
        request.end_headers()
        if self.cut_after is not None and request.path not in self._cut:
            self._cut.add(request.path)
            body = body[: self.cut_after]
            request.close_connection = True
        request.wfile.write(body)

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *trouble):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
