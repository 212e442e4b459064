"""The results of a run: one JSON line per fit, only ever appended to.

A line is written in one piece and forced to disk. A process killed in the middle of a write leaves at most
a torn last line; it is cut off when the file is next opened for writing and ignored when it is only read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FIELDS: dict[str, str] = {
    "key": "Name of the fit: a hash of everything declared that decides its outcome.",
    "status": "done, or failed.",
    "paper": "Short name of the paper, or of the chapter.",
    "experiment": "Name of the experiment within it.",
    "params": "The point of the grid.",
    "seed": "The seed: of the split, where one is drawn, and of everything random in the fit.",
    "device": "The device that was asked for with --device; null is the CPU.",
    "started_at": "Seconds since 1970, UTC.",
    "finished_at": "Seconds since 1970, UTC.",
    "data": "What was fitted: name, n_train, n_test, n_features (after the features were computed) and where the split is "
    "from.",
    "estimator": "The estimator with its settings, as it prints itself.",
    "metrics": "error, accuracy, balanced_error, balanced_accuracy (percent of the test rows); seconds (the fit, without "
    "evaluation), predict_seconds, feature_seconds; peak_mb (resident memory during fit and predict); cv_error, cv_accuracy "
    "(percent) and cv_seconds where the experiment cross-validates; what the experiment adds.",
    "peak_since": "fit, or process start where the system cannot reset the peak.",
    "history": "One entry for each iteration: n_iter, seconds, what the solver reports, error (percent) where it was "
    "measured.",
    "confusion": "labels and counts; a row for each true class.",
    "misclassified": "total, image_shape, and the first images with index, true, predicted and pixels (base64 bytes).",
    "pictures": "Small pictures by name: image_shape, and images with said (a caption) and pixels (base64 bytes).",
    "warnings": "Distinct warnings with their counts.",
    "busy": "true where the machine had other work at the same time: the errors count, the seconds are rough.",
    "versions": "Of Python and of the packages that decide a result.",
    "hardware": "Processor, cores, threads of the linear algebra, memory, system; the GPU where there is one.",
    "commit": "Of the source tree, with -dirty where it had changes; null outside one.",
    "reason": "Of a failed fit: what was raised.",
    "traceback": "Of a failed fit: where.",
}
"""The fields of a line of results.jsonl."""


class ResultsError(RuntimeError):
    """A results file is damaged somewhere other than at its end.

    See Also
    --------
    Results : Raises it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from gramless.papers.experiments import Results, ResultsError
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "results.jsonl"
    >>> _ = path.write_text("nothing\\n")
    >>> try:
    ...     Results(path).records()
    ... except ResultsError as reason:
    ...     print("line 1" in str(reason))
    True
    """


class Results:
    """The records of one file, in the order they were finished.

    Parameters
    ----------
    path : path-like
        The file; it need not exist yet.

    See Also
    --------
    run : Fills it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from gramless.papers.experiments import Results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = Results(pathlib.Path(folder) / "results.jsonl")
    ...     results.append({"key": "a", "status": "done"})
    ...     Results(results.path).finished()
    {'a'}
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record and force it to disk.

        Parameters
        ----------
        record : mapping
            Plain JSON with a ``key``.
        """
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._cut_torn_line()
        with open(self.path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """Read every complete record.

        Returns
        -------
        list of dict
            In order; a later record replaces an earlier one of the same key in its place.
        """
        if not self.path.exists():
            return []
        latest: dict[str, dict[str, Any]] = {}
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                try:
                    record = json.loads(line)
                    if not isinstance(record["key"], str) or not isinstance(record["status"], str):
                        raise TypeError("key and status are text")
                    latest[record["key"]] = record
                except (ValueError, KeyError, TypeError, RecursionError) as reason:
                    raise ResultsError(f"{self.path}, line {number} is not a result: {reason}") from reason
        return list(latest.values())

    def finished(self) -> set[str]:
        """List the fits that need not be repeated; failed ones are tried again.

        Returns
        -------
        set of str
            Their keys.
        """
        return {record["key"] for record in self.records() if record["status"] == "done"}

    def _cut_torn_line(self) -> None:
        if not self.path.exists():
            return
        with open(self.path, "rb+") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
