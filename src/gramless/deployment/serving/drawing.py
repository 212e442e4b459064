"""Web application with a page for drawing a digit, which shows the class probabilities while the user draws.

The page sends its canvas as rows of pixel values from 0 to 255. As in MNIST, the drawing is cropped, scaled to a box with
20 / 28 of the side length of the model's images, and shifted so that its centre of mass is in the centre of the image.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, field_validator
from scipy.ndimage import center_of_mass
from starlette.middleware import Middleware

from gramless.deployment.serving.server import AccessMiddleware, page
from gramless.estimators.image import ImageClassifier
from gramless.images.activations import equal_areas

_LARGEST_SIDE = 512  # pixels
_BOX = 20 / 28

_Brightness = Annotated[float, Field(ge=0, le=255)]
_PixelRow = Annotated[list[_Brightness], Field(min_length=1, max_length=_LARGEST_SIDE)]


class DrawingRequest(BaseModel):
    """Drawing as rows of pixels."""

    drawing: Annotated[list[_PixelRow], Field(min_length=1, max_length=_LARGEST_SIDE)]

    @field_validator("drawing")
    @classmethod
    def _check_equal_lengths(cls, rows: list[list[float]]) -> list[list[float]]:
        if len({len(row) for row in rows}) > 1:
            raise ValueError("all rows of a drawing must have the same length")
        return rows


class DrawingResponse(BaseModel):
    """Class labels with their probabilities; None for an empty drawing."""

    chances: list[tuple[str, float]] | None


def drawing_app(model: ImageClassifier) -> FastAPI:
    """Return an application with the page and the route `/scores`; `model` predicts square images, bright on dark."""
    app = FastAPI(title="gramless demo", docs_url=None, redoc_url=None, middleware=[Middleware(AccessMiddleware)])

    @app.exception_handler(RequestValidationError)
    async def on_invalid_drawing(_: Request, reason: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": f"the drawing is not valid: {reason.errors()[0]['msg']}"}, status_code=400)

    app.get("/", include_in_schema=False)(page("drawing.html"))

    @app.post("/scores")
    async def scores(request: DrawingRequest) -> DrawingResponse:
        drawing = np.array(request.drawing)
        if not drawing.any():
            return DrawingResponse(chances=None)
        probabilities = model.predict_proba(centred(drawing, model.image_shape_[0])[None])[0]
        return DrawingResponse(chances=list(zip(map(str, model.classes_), probabilities.tolist(), strict=True)))

    return app


def centred(drawing: np.ndarray, side: int) -> np.ndarray:
    """Return an image of side x side pixels with the scaled drawing, whose centre of mass is in the centre of the image."""
    rows, columns = np.flatnonzero(drawing.any(axis=1)), np.flatnonzero(drawing.any(axis=0))
    cropped = drawing[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = _BOX * side / max(cropped.shape)
    height, width = (max(1, round(scale * length)) for length in cropped.shape)
    small = equal_areas(cropped.shape[0], height) @ cropped @ equal_areas(cropped.shape[1], width).T
    offsets = np.rint((side - 1) / 2 - np.array(center_of_mass(small))).astype(int)
    top, left = np.clip(offsets, 0, (side - height, side - width))
    image = np.zeros((side, side))
    image[top : top + height, left : left + width] = small
    return image
