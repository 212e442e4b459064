"""Script that reads damaged and forged model files in a process that may crash, and prints the outcomes as JSON."""

import collections
import faulthandler
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from mutations import damaged, forged

import gramless


def models(X, y):
    rows = sp.csr_matrix(np.where(X > 0.3, X, 0.0))
    yield gramless.LSSVC(C=10.0).fit(X, y), X
    yield gramless.LSSVC(C=10.0, kernel="laplacian").fit(rows, y), rows
    yield gramless.KernelSVC().fit(rows, y), rows
    yield gramless.NystromLSSVC(n_landmarks=20, random_state=0).fit(rows, y), rows
    yield gramless.LSSVR().fit(X, X[:, 0]), X


def main(folder, count):
    faulthandler.enable()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    originals = []
    for number, (model, rows) in enumerate(models(X, y)):
        gramless.save(model, folder / f"{number}.skops")
        originals.append(((folder / f"{number}.skops").read_bytes(), rows, model.predict(rows)))
    happened = collections.Counter()
    wrong = []
    for number in range(count):
        content, rows, expected = originals[number % len(originals)]
        spoil = damaged if number % 2 else forged
        (folder / "m.skops").write_bytes(spoil(content, np.random.default_rng(number)))
        try:
            model = gramless.load(folder / "m.skops")
        except ValueError as reason:
            happened["refused"] += 1
            if len(str(reason).splitlines()) > 3:
                wrong.append(f"{number}: the message has more than three lines: {reason}")
            continue
        except BaseException as reason:
            wrong.append(f"{number}, {spoil.__name__}: {reason!r}")
            continue
        happened[f"{spoil.__name__}, read"] += 1
        if not hasattr(model, "predict"):
            continue
        found = model.predict(rows)
        if len(found) != len(expected) or (spoil is damaged and not np.array_equal(found, expected)):
            wrong.append(f"{number}, {spoil.__name__}: another model")
    sys.stdout.write(json.dumps({"happened": happened, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
