"""The experiments of the document "risvo"."""

from __future__ import annotations

from gramless.experiments.spec import Spec

SPECS: tuple[Spec, ...] = ()
