"""`gramless demo`: a local page on which a user draws a digit and a model classifies it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.datasets import load_digits

from gramless import ImageClassifier
from gramless.cli.errors import InputError
from gramless.papers.datasets import find, load

# Number of MNIST digits, which takes a few seconds to fit.
ROWS = 5000
ATOMS = 64


def demo(port: int, data: Path | None, console: Console) -> None:
    """Train on MNIST if it is available, else on the digits of scikit-learn, and serve the page until Ctrl-C."""
    for needed in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(needed) is None:
            raise InputError(f"the page needs {needed}: pip install 'gramless[serve]'")
    from gramless.deployment.serving import drawing_app, serve

    images, y, name = digits(data)
    with console.status(f"training on {len(y):,} digits of {name}"):
        model = ImageClassifier(n_atoms=ATOMS, mirror=False, C=10.0, random_state=0).fit(images, y)

    def announce(address: str) -> None:
        console.print(f"Draw at [bold]{address}[/bold]; Ctrl-C stops the server.", highlight=False, soft_wrap=True)

    try:
        serve(drawing_app(model), port, announce)
    except OSError as reason:
        raise InputError(f"port {port} cannot be used ({reason.strerror}): give another --port, or 0 for any") from reason


def digits(data: Path | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Return images with values from 0 to 255, labels, and the name of their source."""
    if find("mnist", data) is not None:
        mnist = load("mnist", data=data, download=False).sample(ROWS)
        return mnist.x_train.reshape(-1, 28, 28), mnist.y_train, "MNIST"
    small = load_digits()
    return small.images * (255 / 16), small.target, "scikit-learn"
