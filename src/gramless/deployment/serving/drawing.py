"""A page on which one draws, and scores of what is drawn, while drawing.

The page sends its canvas as rows of numbers from 0 to 255. The drawing is cropped, scaled into a box of 20 / 28 of the
model's images and moved so that its centre of mass is in the middle, as the digits of MNIST were.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np

from gramless.deployment.serving.server import HOSTS, PAGE_HEADERS
from gramless.images.activations import equal_areas

# Sides of a drawing, in pixels, that are taken.
_LARGEST = 512
_BOX = 20 / 28


def drawing_app(model: Any) -> Any:
    """An ASGI application: the page, and the scores of a drawing.

    Parameters
    ----------
    model : ImageClassifier
        Fitted to square grey images, bright on dark, from 0 to 255.

    Returns
    -------
    Starlette
        With the routes `/` and `/scores`.

    See Also
    --------
    serve : Runs it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gramless import ImageClassifier
    >>> from gramless.deployment.serving import drawing_app
    >>> images, y = load_digits().images[:200] * 15, load_digits().target[:200]
    >>> app = drawing_app(ImageClassifier(n_atoms=16, C=10.0, mirror=False, random_state=0).fit(images, y))
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    side = model.image_shape_[0]
    page = resources.files("gramless.deployment.serving").joinpath("drawing.html").read_text(encoding="utf-8")

    async def show(request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=PAGE_HEADERS)

    async def scores(request: Request) -> JSONResponse:
        try:
            drawing = read_drawing(await request.json())
        except ValueError as reason:
            return JSONResponse({"error": str(reason)}, status_code=400)
        if not drawing.any():
            return JSONResponse({"chances": None})
        chances = model.predict_proba(centred(drawing, side)[None])[0]
        named = [[str(label), float(chance)] for label, chance in zip(model.classes_, chances, strict=True)]
        return JSONResponse({"chances": named})

    routes = [Route("/", show), Route("/scores", scores, methods=["POST"])]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)])


def read_drawing(sent: Any) -> np.ndarray:
    """A drawing as the page sends it, or a `ValueError`."""
    if not isinstance(sent, dict) or "drawing" not in sent:
        raise ValueError("send an object with a drawing")
    try:
        drawing = np.array(sent["drawing"], dtype=np.float64)
    except (TypeError, ValueError) as reason:
        raise ValueError("a drawing is rows of numbers, all of one length") from reason
    if drawing.ndim != 2 or not 1 <= min(drawing.shape) <= max(drawing.shape) <= _LARGEST:
        raise ValueError(f"a drawing has up to {_LARGEST} rows of as many numbers, not the shape {drawing.shape}")
    if not np.isfinite(drawing).all() or drawing.min() < 0 or drawing.max() > 255:
        raise ValueError("the numbers of a drawing are from 0 to 255")
    return drawing


def centred(drawing: np.ndarray, side: int) -> np.ndarray:
    """What is drawn, scaled into a box and with its centre of mass in the middle of side x side pixels."""
    rows, columns = np.flatnonzero(drawing.any(axis=1)), np.flatnonzero(drawing.any(axis=0))
    ink = drawing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = _BOX * side / max(ink.shape)
    height, width = (max(1, round(scale * length)) for length in ink.shape)
    small = equal_areas(ink.shape[0], height) @ ink @ equal_areas(ink.shape[1], width).T
    mass = small.sum()
    middle = (side - 1) / 2
    top = round(middle - float((small.sum(axis=1) @ np.arange(height)) / mass))
    left = round(middle - float((small.sum(axis=0) @ np.arange(width)) / mass))
    top, left = (min(max(place, 0), side - length) for place, length in ((top, height), (left, width)))
    out = np.zeros((side, side))
    out[top : top + height, left : left + width] = small
    return out
