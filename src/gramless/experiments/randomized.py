"""The experiments of the document "randomized": kernel (x . y)^4 on centred unit-norm images, C = 1e4."""

from __future__ import annotations

from typing import Any

from gramless.experiments.spec import Params, Reference, Spec, product
from gramless.experiments.views import Confusion, Gallery, History, Table


def unit_vectors(params: Params, seed: int) -> Any:
    """Eqs. (61)-(62): each image centred and scaled to unit norm."""
    from gramless.images import UnitNormalizer

    return UnitNormalizer()


def quartic_machine(params: Params, seed: int) -> Any:
    """The document's machine; the grid says how its system is solved."""
    from gramless import LSSVC

    return LSSVC(kernel="poly", degree=4, gamma=1.0, coef0=0.0, C=1e4, random_state=seed, **params)


SPECS: tuple[Spec, ...] = (
    Spec(
        document="randomized",
        name="mnist-exact",
        title="The system solved to the end",
        about=(
            "What the randomized solvers approach: the whole system, by conjugate gradients with a Nyström "
            "preconditioner, on the raw pixels. The document's solvers all settle near 1.1 %."
        ),
        data="mnist",
        features=unit_vectors,
        estimator=quartic_machine,
        grid=product(solver=["cg"], tol=[1e-3], max_iter=[30]),
        evaluate_every=1,
        views=(History(), Table(metrics=("error", "seconds", "peak_mb")), Confusion(), Gallery()),
        document_says=(Reference(1.1, "Fig. 2", spread=0.1),),
        quick={"grid": product(solver=["cholesky", "cg"], tol=[1e-6], max_iter=[60])},
    ),
)
