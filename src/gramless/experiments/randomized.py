"""The experiments of the document "randomized"."""

from __future__ import annotations

from gramless.experiments.spec import Spec

SPECS: tuple[Spec, ...] = ()
