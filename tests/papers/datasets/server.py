"""A web server for tests that can behave badly: cut answers short, lie, disappear."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files:
    """Serves `contents` (path -> bytes) on a free port of this machine; a context manager."""

    def __init__(self, contents, *, cut_after=None, cut_always=False):
        self.contents = contents
        self.cut_after = cut_after  # bytes after which the first answer of each path is cut, or every one
        self.cut_always = cut_always
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
        self.requests.append(request.path)
        body = self.contents.get(request.path)
        if body is None:
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cut_after is not None and (self.cut_always or request.path not in self._cut):
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
