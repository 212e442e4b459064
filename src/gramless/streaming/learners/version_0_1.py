"""Training passes in model files of version 0.1.0."""

from __future__ import annotations

from typing import Any

from gramless.streaming.learners.training_pass import CollectingPass, FinishedPass, LearningPass, RowFormat, TrainingPass


class PassOfVersion01:
    """Training pass as version 0.1.0 stored it: the phase is a string, and attributes of other phases are None."""

    def convert(self) -> TrainingPass:
        """Return the pass as an object of the class of its phase."""
        old: dict[str, Any] = vars(self)
        format = RowFormat(int(old["n_columns"]), old["dtype"], old["device"])
        common = {"format": format, "targets": old["targets"], "seed": int(old["seed"]), "history": old["history"]}
        if old["phase"] == "finished":
            return FinishedPass(solved=old["solved"], **common)
        if old["phase"] == "holding":
            return CollectingPass(sample=old["sample"], blocks=old["held"], solved=old["solved"], **common)
        learned = {name: old[name] for name in ("features", "sample", "rows_seen", "solved")}
        return LearningPass(state=old["run"], **learned, **common)
