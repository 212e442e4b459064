"""A web server for tests that can truncate its responses."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files:
    """Context manager that serves `contents` (path -> bytes) on a free local port."""

    def __init__(self, contents, *, cut_after=None, cut_always=False):
        self.contents = contents
        self.cut_after = cut_after  # bytes of the first response of each path, or of every response
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

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
