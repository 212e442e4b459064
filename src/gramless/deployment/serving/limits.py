"""How much one server takes on: sizes, rows, requests and seconds, each with a bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a server; what goes beyond one of them is refused with a sentence.

    Parameters
    ----------
    body_bytes : int
        The largest body of a request.
    rows : int
        The most rows of a request.
    waiting_rows : int
        The most rows, of all requests together, that wait for a model.
    batch_rows : int
        Requests are scored together up to so many rows.
    explained_rows : int
        The most rows of a request that asks which inputs moved its predictions.
    seconds : float
        From a whole request to its answer.
    reading_seconds : float
        For a client to send its headers, and again for its body.
    stopping_seconds : float
        For requests that are under way when the server is told to stop.
    connections : int
        Open at a time.

    See Also
    --------
    serve : Takes them.

    Examples
    --------
    >>> from gramless.deployment.serving import Limits
    >>> Limits(rows=100).rows
    100
    """

    body_bytes: int = 16 * 2**20
    rows: int = 10_000
    waiting_rows: int = 50_000
    batch_rows: int = 1024
    explained_rows: int = 20
    seconds: float = 30.0
    reading_seconds: float = 10.0
    stopping_seconds: float = 20.0
    connections: int = 1000
