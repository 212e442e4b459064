"""Script that reads damaged checkpoints in a separate process, which may crash, and prints the outcomes as JSON."""

import collections
import contextlib
import faulthandler
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from mutations import damaged

from gramless import LSSVC
from gramless._core.checkpoint import StateFile
from gramless.callbacks import Checkpoint

FITS = 25  # files from which a fit is also resumed, which takes longer than reading


class Interrupted(Exception):
    pass


def stop_at_four(estimator, record):
    if record["n_iter"] == 4:
        raise Interrupted


def main(path, count):
    faulthandler.enable()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=300) > 0, "a", "b")

    def model(*functions):
        return LSSVC(C=100.0, solver="cg", callback=[Checkpoint(path, every=1), *functions], random_state=0)

    expected = model().fit(X, y).dual_coef_
    with contextlib.suppress(Interrupted):
        model(stop_at_four).fit(X, y)
    content = path.read_bytes()
    with np.load(path) as file:
        problem = json.loads(file["header"].tobytes())["problem"]
    state = StateFile(path, problem).load()
    assert state is not None
    happened = collections.Counter()
    wrong = []
    for number in range(count):
        path.write_bytes(damaged(content, np.random.default_rng(number)))
        try:
            if number < FITS:
                same = np.array_equal(model().fit(X, y).dual_coef_, expected)
            else:
                found = StateFile(path, problem).load()
                same = np.array_equal(found.W, state.W) and found.history == state.history
            happened["read"] += 1
            if not same:
                wrong.append(f"{number}: another state")
        except ValueError as reason:
            happened["refused"] += 1
            if "remove it" not in str(reason):
                wrong.append(f"{number}: {reason}")
        except BaseException as reason:
            wrong.append(f"{number}: {reason!r}")
    sys.stdout.write(json.dumps({"happened": happened, "wrong": wrong}))


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "fit.npz", int(sys.argv[2]))
