"""`TableClassifier` / `TableRegressor` against boosted trees over a suite of different tables.

    python benchmarks/tables.py                      # all tables, five seeds, defaults; resumes from the records in --out
    python benchmarks/tables.py --seeds 0 --only banana titanic
    python benchmarks/tables.py --tuned              # adds trees tuned by random search within the same CPU time
    python benchmarks/tables.py --learners xRFM RealMLP "gramless, fast" --seeds 0
    python benchmarks/tables.py --print              # prints errors and log losses of all tables
    python benchmarks/tables.py --print --markdown   # prints mean ranks and lost tables as in README and docs
    python benchmarks/tables.py --print --seeds 0 1 2 # the same records, of these seeds only
    python benchmarks/tables.py --learners gramless --set column_scales=equal --out plain.json

Splits are 80 / 20, drawn with the seed and stratified by class. Trees receive categorical columns in the form that each
library supports natively. Needs the extra `bench` (LightGBM, XGBoost, CatBoost) and the data folder in GRAMLESS_DATA
with its subfolder `tables`; missing files are reported and skipped. xRFM and RealMLP are those of pytabkit.

Ranks are by error (1 - accuracy, or root mean squared error), per table from the mean over the seeds that every learner has;
ties share a rank.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn import datasets as sk
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gramless.papers.datasets import load
from gramless.papers.experiments.environment import commit, environment

CSV = {
    **dict.fromkeys(
        ["banana", "titanic", "ring", "texture", "optdigits", "mushroom", "chess", "tic_tac_toe", "wdbc", "australian"],
        ("class", "classes"),
    ),
    **dict.fromkeys(["vowel", "led7digit"], ("class", "classes")),
    "hdma": ("deny", "classes"),
    "computers": ("price", "values"),
    "nox_emissions": ("LNOx", "values"),
    "wages": ("lwage", "values"),
    "diamonds": ("price", "values"),
    "insteval": ("y", "values"),
    "loans": ("interest_rate", "values"),
    "movies": ("votes", "values"),
    "ames": ("Sale_Price", "values"),
}
OWN = {
    "wine_classes": ("wine_quality", "classes", None),
    "wine_values": ("wine_quality", "values", None),
    "spambase": ("spambase", "classes", None),
    "pendigits": ("pendigits", "classes", None),
    "letter": ("letter", "classes", None),
    "california": ("california_housing", "values", None),
    "bank": ("bank", "classes", None),
    "covertype_50000": ("covtype", "classes", 50_000),
    "covertype": ("covtype", "classes", None),
}
TOY = {
    "iris": (sk.load_iris, "classes"),
    "wine": (sk.load_wine, "classes"),
    "breast_cancer": (sk.load_breast_cancer, "classes"),
    "digits": (sk.load_digits, "classes"),
    "diabetes": (sk.load_diabetes, "values"),
}
# Default of --only: all tables except the one with half a million rows.
SMALL_FIRST = [
    *("iris", "wine", "diabetes", "led7digit", "wdbc", "breast_cancer", "australian", "tic_tac_toe", "vowel", "digits"),
    *("titanic", "hdma", "chess", "wages", "spambase", "wine_classes", "wine_values", "banana", "texture", "optdigits"),
    *("mushroom", "computers", "ring", "nox_emissions", "pendigits", "letter", "california", "bank", "covertype_50000"),
    *("diamonds", "ames", "loans", "movies", "insteval"),
]


def table(name: str) -> tuple[pd.DataFrame, np.ndarray, str]:
    """Return inputs, target and "classes" or "values"."""
    if name in TOY:
        function, kind = TOY[name]
        data = function(as_frame=True)
        return data.data, data.target.to_numpy(), kind
    if name in CSV:
        target, kind = CSV[name]
        frame = pd.read_csv(Path(os.environ["GRAMLESS_DATA"]) / "tables" / f"{name}.csv.gz")
        y = frame.pop(target)
        return frame, (y.astype(str) if kind == "classes" else y.astype(float)).to_numpy(), kind
    source, kind, rows = OWN[name]
    data = load(source)
    x, y = data.pooled()
    frame = pd.DataFrame(x.reshape(len(x), -1))
    frame.columns = list(data.feature_names or [f"x{k}" for k in range(frame.shape[1])])
    for column in data.categorical:
        frame[frame.columns[column]] = [f"level {int(code)}" for code in x[:, column]]
    if rows is not None:
        kept = np.random.default_rng(0).permutation(len(y))[:rows]
        frame, y = frame.iloc[kept].reset_index(drop=True), y[kept]
    return frame, y.astype(float) if kind == "values" else y, kind


def words(X: pd.DataFrame) -> list[str]:
    return [c for c in X.columns if not pd.api.types.is_numeric_dtype(X[c]) or pd.api.types.is_bool_dtype(X[c])]


def as_categories(X: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    X = X.copy()
    for column in words(like):
        levels = sorted(like[column].dropna().astype(str).unique())
        X[column] = pd.Categorical(X[column].where(X[column].isna(), X[column].astype(str)), categories=levels)
    return X


class Peer:
    """Common interface of the other libraries: `fit` and `predict`, with classes 0 .. k - 1."""

    def __init__(self, library: str, kind: str, seed: int, **settings: Any):
        self.package, self.kind, self.seed, self.settings = library, kind, seed, settings

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Peer:
        self.like = X
        ready = self._ready(X)
        classes = self.kind == "classes"
        if self.package == "HistGradientBoosting":
            from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

            made = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
            self.model = made(random_state=self.seed, **self.settings)
        elif self.package == "LightGBM":
            from lightgbm import LGBMClassifier, LGBMRegressor

            made = LGBMClassifier if classes else LGBMRegressor
            self.model = made(random_state=self.seed, n_jobs=THREADS, verbose=-1, **self.settings)
        elif self.package == "XGBoost":
            from xgboost import XGBClassifier, XGBRegressor

            made = XGBClassifier if classes else XGBRegressor
            self.model = made(random_state=self.seed, n_jobs=THREADS, enable_categorical=True, **self.settings)
        elif self.package in NETWORKS:
            import pytabkit

            made = getattr(pytabkit, NETWORKS[self.package] + ("_Classifier" if classes else "_Regressor"))
            self.model = made(random_state=self.seed, n_threads=THREADS, device="cpu", **self.settings)
        else:
            from catboost import CatBoostClassifier, CatBoostRegressor

            made = CatBoostClassifier if classes else CatBoostRegressor
            fixed = {"random_seed": self.seed, "verbose": False, "allow_writing_files": False, "cat_features": words(X)}
            self.model = made(thread_count=THREADS, **fixed, **self.settings)
        self.model.fit(ready, y)
        return self

    def _ready(self, X: pd.DataFrame) -> pd.DataFrame:
        if self.package != "CatBoost":
            ready = as_categories(X, self.like)
            if self.package == "HistGradientBoosting":  # larger categories raise an error
                many = [c for c in words(X) if len(ready[c].cat.categories) > MOST_CATEGORIES]
                ready[many] = ready[many].apply(lambda column: column.cat.codes)
            if self.package in NETWORKS:  # missing numbers raise an error
                ready = ready.fillna(self.like.median(numeric_only=True))
            ready.columns = [f"c{k}" for k in range(ready.shape[1])]
            return ready
        X = X.copy()
        for column in words(self.like):
            X[column] = X[column].where(X[column].notna(), "missing").astype(str)
        return X

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return probabilities for classes, else values."""
        ready = self._ready(X)
        return self.model.predict_proba(ready) if self.kind == "classes" else np.asarray(self.model.predict(ready)).ravel()


class Ours:
    """`TableClassifier` and `TableRegressor` with default settings."""

    def __init__(self, kind: str, seed: int, **settings: Any):
        import gramless

        made = gramless.TableClassifier if kind == "classes" else gramless.TableRegressor
        self.kind, self.model = kind, made(random_state=seed, **settings)

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Ours:
        self.model.fit(X, y)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return probabilities for classes, else values."""
        return self.model.predict_proba(X) if self.kind == "classes" else self.model.predict(X)


THREADS = os.cpu_count()
MOST_CATEGORIES = 255
"""Most categories of a column that HistGradientBoosting accepts; columns with more are given as numbers."""
OURS: dict[str, dict[str, Any]] = {"gramless": {}, "gramless, fast": {"preset": "fast"}}
LIBRARIES = ("CatBoost", "LightGBM", "HistGradientBoosting", "XGBoost")
NETWORKS = {"xRFM": "XRFM_D", "RealMLP": "RealMLP_TD"}
"""The estimators of pytabkit with default settings; they hold out a fifth of the training rows themselves."""
TWELVE = SMALL_FIRST[:12]
"""The smallest tables, on which trees are tuned with three seeds and NETWORKS are compared."""


def draw(library: str, rng: np.random.Generator) -> dict[str, Any]:
    """Draw random settings from ranges that users search."""
    rate, leaves = float(10 ** rng.uniform(-2, -0.5)), int(2 ** rng.uniform(3, 7))
    depth, rounds = int(rng.integers(3, 11)), int(2 ** rng.uniform(6, 10))
    penalty, share = float(10 ** rng.uniform(-3, 1)), float(rng.uniform(0.5, 1.0))
    if library == "HistGradientBoosting":
        least = int(2 ** rng.uniform(1, 6))
        return {
            "learning_rate": rate,
            "max_leaf_nodes": leaves,
            "max_iter": rounds,
            "l2_regularization": penalty,
            "min_samples_leaf": least,
            "max_features": share,
        }
    if library == "LightGBM":
        return {
            "learning_rate": rate,
            "num_leaves": leaves,
            "n_estimators": rounds,
            "reg_lambda": penalty,
            "subsample": share,
            "subsample_freq": 1,
            "colsample_bytree": float(rng.uniform(0.5, 1.0)),
            "min_child_samples": int(2 ** rng.uniform(1, 6)),
        }
    if library == "XGBoost":
        return {
            "learning_rate": rate,
            "max_depth": depth,
            "n_estimators": rounds,
            "reg_lambda": penalty,
            "subsample": share,
            "colsample_bytree": float(rng.uniform(0.5, 1.0)),
        }
    return {"learning_rate": rate, "depth": min(depth, 8), "iterations": rounds, "l2_leaf_reg": 10 * penalty + 0.1}


def search(library: str, kind: str, seed: int, X: pd.DataFrame, y: np.ndarray, seconds: float) -> Peer:
    """Return the best of random settings on a validation fifth of the rows, defaults first, refitted to all rows.

    The search ends after the given CPU seconds.
    """
    began, rng = time.process_time(), np.random.default_rng(seed)
    inner = split(X, y, kind, seed + 1000)
    best, best_loss, settings = {}, np.inf, {}
    while time.process_time() - began < seconds:
        try:
            predicted = Peer(library, kind, seed, **settings).fit(inner[0], inner[2]).predict(inner[1])
            loss = rate(inner[3], predicted, kind, len(np.unique(y)))["error"]
        except ValueError:  # A class that does not occur in the inner training rows.
            loss = np.inf
        if loss < best_loss:
            best, best_loss = settings, loss
        settings = draw(library, rng)
    return Peer(library, kind, seed, **best).fit(X, y)


def split(X: pd.DataFrame, y: np.ndarray, kind: str, seed: int) -> list[Any]:
    stratify = y if kind == "classes" and np.unique(y, return_counts=True)[1].min() >= 5 else None
    return train_test_split(X, y, test_size=0.2, random_state=seed, stratify=stratify)


def rate(y: np.ndarray, predicted: np.ndarray, kind: str, n_classes: int) -> dict[str, float]:
    if kind == "classes":
        wrong = predicted.argmax(axis=1) != y
        loss = log_loss(y, np.clip(predicted, 1e-15, 1), labels=np.arange(n_classes))
        return {"error": float(wrong.mean()), "log_loss": float(loss), "se": float(wrong.std() / np.sqrt(len(y)))}
    square = (predicted - y) ** 2
    error = float(np.sqrt(square.mean()))
    return {
        "error": error,
        "r2": float(1 - square.mean() / np.var(y)),
        "se": float(square.std() / np.sqrt(len(y)) / (2 * error)),
    }


def run(name: str, seed: int, learner: str, tuned_seconds: float | None, settings: dict[str, Any]) -> dict[str, Any]:
    X, y, kind = table(name)
    n_classes = 0
    if kind == "classes":
        levels, y = np.unique(y, return_inverse=True)
        n_classes = len(levels)
    X_train, X_test, y_train, y_test = split(X, y, kind, seed)
    began, worked = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if learner in OURS:
            model: Any = Ours(kind, seed, **OURS[learner], **settings).fit(X_train, y_train)
        elif tuned_seconds is None:
            model = Peer(learner, kind, seed).fit(X_train, y_train)
        else:
            model = search(learner, kind, seed, X_train, y_train, tuned_seconds)
        seconds, cpu = time.perf_counter() - began, time.process_time() - worked
        predicted = model.predict(X_test)
    if kind == "classes" and predicted.shape[1] < n_classes:
        full = np.zeros((len(predicted), n_classes))
        full[:, np.unique(y_train)] = predicted
        predicted = full
    found: dict[str, Any] = {
        "commit": commit(),
        "rows": len(y_train),
        "kind": kind,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
    }
    # Wall-clock time depends on other programs, so record the load average of the last minute.
    found["load"] = round(os.getloadavg()[0], 2)
    found |= rate(y_test, predicted, kind, n_classes)
    if learner in OURS:
        found["model"] = getattr(model.model, "summary_", "")
    return found


@dataclass(frozen=True)
class Comparison:
    """Means of the learners on one table over the seeds that all of them have."""

    rows: int
    seeds: int
    means: np.ndarray
    standard_errors: np.ndarray
    """Those of one test set, divided by the square root of the number of seeds."""

    @property
    def ranks(self) -> np.ndarray:
        return rankdata(np.round(self.means, 12))

    @property
    def near(self) -> np.ndarray:
        """Whether each learner is within one standard error of the best."""
        return self.means <= self.means.min() + self.standard_errors[self.means.argmin()]


def compare(results: dict[str, dict[str, Any]], names: list[str], learners: list[str], key: str) -> dict[str, Comparison]:
    """Return the comparison on each table that has records of all learners."""
    found = {}
    for name in names:
        seeds = sorted({k.split("/")[1] for k in results if k.startswith(f"{name}/")})
        keys = [[f"{name}/{seed}/{learner}" for learner in learners] for seed in seeds]
        records = [[results[k] for k in row] for row in keys if all(key in results.get(k, {}) for k in row)]
        if records:
            means, errors = (np.mean([[one[what] for one in row] for row in records], axis=0) for what in (key, "se"))
            found[name] = Comparison(records[0][0]["rows"], len(records), means, errors / np.sqrt(len(records)))
    return found


def summary(results: dict[str, dict[str, Any]], names: list[str], learners: list[str], key: str = "error") -> str:
    """Return means over the seeds by table, ranks, and mean ranks."""
    found = compare(results, names, learners, key)
    if not found:
        return "no table has every learner yet"
    lines = [f"{key}, mean over the seeds (rank)"]
    lines.append(f"{'table':18s} {'rows':>7s} {'seeds':>5s}  " + "  ".join(f"{name[:16]:>16s}" for name in learners))
    for name, one in found.items():
        cells = "  ".join(f"{value:12.5g} ({rank:g})" for value, rank in zip(one.means, one.ranks, strict=True))
        lines.append(f"{name:18s} {one.rows:7d} {one.seeds:5d}  {cells}")
    mean = np.mean([one.ranks for one in found.values()], axis=0)
    share = np.mean([one.near for one in found.values()], axis=0)
    lines.append(f"{'mean rank':18s} {len(found):7d} {'':5s}  " + "  ".join(f"{value:16.2f}" for value in mean))
    lines.append(f"{'within one s.e.':18s} {'':7s} {'':5s}  " + "  ".join(f"{value:16.0%}" for value in share))
    return "\n".join(lines)


def mean_ranks(results: dict[str, dict[str, Any]], names: list[str], learners: list[str]) -> str:
    """Return a Markdown table with the mean ranks of the learners by error and by log loss."""
    titles = [f"`{name}`" if name in OURS else name for name in learners]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(learners) + 1) + "|"]
    for key, what in (("error", "error"), ("log_loss", "log loss")):
        found = compare(results, names, learners, key).values()
        if found:
            cells = [f"{rank:.2f}" for rank in np.mean([one.ranks for one in found], axis=0)]
            lines.append(f"| mean rank by {what}, {len(found)} tables | " + " | ".join(cells) + " |")
        if found and key == "error":
            cells = [f"{share:.0%}" for share in np.mean([one.near for one in found], axis=0)]
            lines.append("| within one standard error of the best | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def losses(results: dict[str, dict[str, Any]], names: list[str], learners: list[str]) -> str:
    """Return a Markdown table of the tables on which the first learner does not have the lowest error.

    The difference and its two standard errors, as if the test errors were independent, are relative to the lowest error.
    """
    found = compare(results, names, learners, "error")
    lines = ["| table | rows | seeds | error | lowest error | difference | two standard errors |", "|---" * 7 + "|"]
    for name, one in found.items():
        best = int(one.means.argmin())
        ours, least = one.means[0], one.means[best]
        if ours > least + 1e-12:
            error = 2 * np.hypot(one.standard_errors[0], one.standard_errors[best])
            cells = f"{ours:.4g} | {least:.4g} ({learners[best]}) | {ours / least - 1:.1%} | {error / least:.1%}"
            lines.append(f"| {name} | {one.rows:,} | {one.seeds} | {cells} |")
    lowest = len(found) - len(lines) + 2
    lines += ["", f"`{learners[0]}` has the lowest error, alone or with others, on {lowest} of {len(found)} tables."]
    return "\n".join(lines)


def markdown(results: dict[str, dict[str, Any]], names: list[str], learners: list[str]) -> str:
    """Return mean ranks and lost tables: default settings, tuned trees, xRFM and RealMLP, and the fast preset."""
    ours, trees = learners[0], learners[1:]
    tuned = [ours, *(f"{name}, tuned" for name in trees)]
    comparisons = {
        "Default settings": (names, learners),
        f"Trees tuned for the CPU time of `gramless`: {', '.join(TWELVE)}": (TWELVE, tuned),
        "Trees tuned for the CPU time of `gramless`, all tables": (names, tuned),
        f"xRFM and RealMLP: {', '.join(TWELVE)}": (TWELVE, [*learners, *NETWORKS]),
        'preset="fast"': (names, ["gramless, fast", *trees]),
    }
    parts = []
    for title, (tables, compared) in comparisons.items():
        if compare(results, tables, compared, "error"):
            parts += [title, mean_ranks(results, tables, compared), losses(results, tables, compared)]
    keys = [key.removesuffix(", fast") for key in results if key.endswith("/gramless, fast")]
    shares = [results[f"{key}, fast"]["cpu_seconds"] / results[key]["cpu_seconds"] for key in keys if key in results]
    if shares:
        parts.append(f"Share of the CPU time, median of {len(shares)} fits: {np.median(shares):.2f}")
    return "\n\n".join(parts)


def setting(text: str) -> tuple[str, Any]:
    """Parse `name=number` or `name=text`."""
    name, value = text.split("=", 1)
    try:
        return name, float(value)
    except ValueError:
        return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", help="tables; all but the half million rows of covertype by default")
    parser.add_argument("--learners", nargs="+", default=["gramless", *LIBRARIES])
    parser.add_argument(
        "--tuned", action="store_true", help="a random search of each tree, for the processor time of gramless"
    )
    parser.add_argument("--set", nargs="*", default=[], help="settings for gramless, as name=value")
    parser.add_argument("--again", nargs="*", default=[], help="learners to run again whatever --out has")
    parser.add_argument("--threads", type=int, help="of the trees; all cores by default")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tables.json"))
    parser.add_argument("--print", action="store_true", help="only print what --out has")
    parser.add_argument("--markdown", action="store_true", help="print as Markdown")
    args = parser.parse_args()
    globals()["THREADS"] = args.threads or THREADS
    results = json.loads(args.out.read_text())["results"] if args.out.exists() else {}
    names = args.only or SMALL_FIRST
    if args.again:
        results = {k: v for k, v in results.items() if k.split("/")[2] not in args.again or k.split("/")[0] not in names}
    settings = dict(setting(one) for one in args.set)
    jobs: list[tuple[str, int, str, bool]] = []
    for name in names:
        for seed in args.seeds:
            jobs += [(name, seed, learner, False) for learner in args.learners]
            if args.tuned:
                jobs += [(name, seed, learner, True) for learner in LIBRARIES]
    for name, seed, learner, tuned in [] if args.print else jobs:
        key = f"{name}/{seed}/{learner}" + (", tuned" if tuned else "")
        if key in results:
            continue
        budget = results[f"{name}/{seed}/gramless"]["cpu_seconds"] if tuned else None
        try:
            results[key] = run(name, seed, learner, budget, settings)
        except FileNotFoundError as error:
            print(f"{name}: {error}")
            continue
        print(key, json.dumps(results[key]), flush=True)
        args.out.write_text(json.dumps({"results": results, **environment()}, indent=1) + "\n")
    results = {key: record for key, record in results.items() if int(key.split("/")[1]) in args.seeds}
    if args.markdown:
        print(markdown(results, names, args.learners))
        return
    shown: Callable[[str], list[str]] = lambda ending: [x if x.startswith("gramless") else x + ending for x in args.learners]  # noqa: E731
    for key in ("error", "log_loss"):
        print("\n" + summary(results, names, shown(""), key))
        if any("tuned" in one for one in results):
            print("\n" + summary(results, names, shown(", tuned"), key))


if __name__ == "__main__":
    main()
