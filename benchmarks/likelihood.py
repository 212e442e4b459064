"""Predictive densities of `LSSVR` and of an exact Gaussian process in GPyTorch on California housing.

    pip install gpytorch
    python benchmarks/likelihood.py [--rows 10000] [--device cuda] [--out benchmarks/results/likelihood.json]

Both have an RBF kernel with one width on standardised columns. `LSSVR(C="loo")` selects width and `C` by leave-one-out and
estimates its scale from the leave-one-out residuals; GPyTorch maximises the marginal likelihood (Adam). A third row
uses `LSSVR` with the width and the noise that GPyTorch found. The negative log likelihood is the mean of `-log p(y)`
over the test rows, where p is the normal density of the prediction, whose variance is that of the function plus the
noise.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gramless import LSSVR
from gramless.papers.datasets import load
from gramless.papers.experiments.environment import environment

STEPS, RATE = 100, 0.1
GAMMAS = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]


def prepared(rows: int) -> tuple[np.ndarray, ...]:
    """Return training and test rows, with columns and targets standardised by the training rows."""
    data = load("california_housing", download=False)
    X, y = np.asarray(data.x_train, dtype=np.float64), np.asarray(data.y_train, dtype=np.float64)
    if data.x_test is not None and len(data.x_test):
        X, y = np.concatenate([X, data.x_test]), np.concatenate([y, data.y_test])
    order = np.random.RandomState(0).permutation(len(y))
    X, y = X[order], y[order]
    X = (X - X[:rows].mean(axis=0)) / X[:rows].std(axis=0)
    y = (y - y[:rows].mean()) / y[:rows].std()
    return X[:rows], y[:rows], X[rows:], y[rows:]


def measured(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> dict[str, float]:
    """Return the negative log likelihood and related measures."""
    nll = 0.5 * np.mean(np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
    inside = np.mean(np.abs(y - mean) <= 1.6449 * np.sqrt(variance))
    return {
        "negative_log_likelihood": round(float(nll), 4),
        "rmse": round(float(np.sqrt(np.mean((y - mean) ** 2))), 4),
        "in_90": round(float(inside), 4),
    }


def of_machine(model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of new targets predicted by a gramless model."""
    model.fit(X, y)
    mean, deviation = model.predict(X_test, return_std=True)
    process = model._posterior()
    return mean, deviation**2 + process.scale[0] * process.machine.ridge


def of_gpytorch(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, device: str, found: dict[str, float]) -> tuple[Any, Any]:
    """Return means and variances of new targets predicted by GPyTorch; store width and noise in `found`."""
    import gpytorch
    import torch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, inputs: Any, values: Any, likelihood: Any):
            super().__init__(inputs, values, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    inputs, values, new = (torch.as_tensor(part, dtype=torch.float32, device=device) for part in (X, y, X_test))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    model = Process(inputs, values, likelihood).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    # Exact Cholesky factors; by default GPyTorch uses an iterative solver at this size.
    with gpytorch.settings.max_cholesky_size(len(X) + 1):
        for _ in range(STEPS):
            optimiser.zero_grad()
            loss = -objective(model(inputs), values)
            loss.backward()
            optimiser.step()
        model.eval(), likelihood.eval()
        with torch.no_grad():
            answer = likelihood(model(new))
            mean, variance = answer.mean.cpu().numpy(), answer.variance.cpu().numpy()
    length = float(model.covar_module.base_kernel.lengthscale.detach())
    found["gamma"] = 1 / (2 * length**2)
    found["C"] = float(model.covar_module.outputscale.detach()) / float(likelihood.noise.detach())
    return mean, variance


def main() -> None:
    """Fit, measure, print and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    X, y, X_test, y_test = prepared(asked.rows)
    found: dict[str, float] = {}
    fits: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "GPyTorch": lambda: of_gpytorch(X, y, X_test, asked.device, found),
        "LSSVR loo": lambda: of_machine(LSSVR(C="loo", gamma=GAMMAS, device=asked.device), X, y, X_test),
        "LSSVR, GPyTorch's width and noise": lambda: of_machine(LSSVR(**found, device=asked.device), X, y, X_test),
    }
    results = []
    for name, fit in fits.items():
        began = time.perf_counter()
        mean, variance = fit()
        record = {"method": name, "rows": asked.rows, **measured(y_test, mean, variance)}
        results.append({**record, "seconds": round(time.perf_counter() - began, 1), **(found if "GPy" in name else {})})
        print(results[-1], flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps({"environment": environment(asked.device), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
