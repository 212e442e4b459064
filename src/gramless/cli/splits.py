"""Splits into training and test rows: random, by groups, by order, or in folds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, StratifiedKFold, train_test_split

from gramless.cli.errors import InputError

Split = tuple[np.ndarray, np.ndarray]


def hold_out(y: np.ndarray, roles: dict[str, np.ndarray], task: str, test_size: float, seed: int) -> Split:
    """Return training and test rows; test rows are random rows, random groups, or the last rows of an order."""
    if np.ceil(test_size * len(y)) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows is one test row: raise --test-size")
    if "order" in roles:
        if "groups" in roles:
            raise InputError("--groups and --order select different test rows: choose one")
        ranked = np.argsort(roles["order"], kind="stable")
        train, test = np.split(ranked, [len(y) - int(np.ceil(test_size * len(y)))])
    elif "groups" in roles:
        if len(np.unique(roles["groups"])) < 2:
            raise InputError("all rows are of one group: nothing can be held out")
        split = GroupShuffleSplit(n_splits=1, test_size=test_size, random_state=seed)
        train, test = next(split.split(y, groups=roles["groups"]))
    else:
        train, test = _random_split(y, task, test_size, seed)
    if task == "classification" and len(np.unique(y[train])) < 2:
        raise InputError(f"the {len(train)} training rows are all of one class: lower --test-size")
    return train, test


def _random_split(y: np.ndarray, task: str, test_size: float, seed: int) -> Split:
    divided, single = np.arange(len(y)), np.empty(0, dtype=int)
    if task == "classification":
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        # The only row of a class is a training row, because a class without training rows cannot be predicted.
        divided, single = np.flatnonzero(counts[codes] > 1), np.flatnonzero(counts[codes] == 1)
    left = len(divided) - int(np.ceil(test_size * len(divided)))
    if left < 1 or left + len(single) < 2:
        raise InputError(f"a share of {test_size:g} of {len(y)} rows leaves too few training rows: lower --test-size")
    try:
        stratify = y[divided] if task == "classification" else None
        train, test = train_test_split(divided, test_size=test_size, random_state=seed, stratify=stratify)
    except ValueError:  # the training or the test set has fewer rows than classes
        train, test = train_test_split(divided, test_size=test_size, random_state=seed)
    return np.concatenate([train, single]), test


def folds(y: np.ndarray, roles: dict[str, np.ndarray], task: str, cv: int, seed: int) -> Iterator[Split]:
    """Yield training and test rows of each of `cv` folds."""
    if not 2 <= cv <= len(y):
        raise InputError(f"{cv} folds of {len(y):,} rows: choose between 2 and {len(y):,}")
    if "order" in roles:
        raise InputError("--cv divides rows at random and contradicts --order: leave one of them out")
    if "groups" in roles:
        splits = GroupKFold(cv).split(y, groups=roles["groups"])
    elif task == "classification" and np.unique(y, return_counts=True)[1].min() >= cv:
        splits = StratifiedKFold(cv, shuffle=True, random_state=seed).split(y, y)
    else:
        splits = KFold(cv, shuffle=True, random_state=seed).split(y)
    for number, (train, test) in enumerate(splits):
        if task == "classification" and len(np.unique(y[train])) < 2:
            raise InputError(f"the training rows of fold {number + 1} are all of one class: choose fewer folds")
        yield train, test
