"""The experiments of the document "budget"."""

from __future__ import annotations

from gramless.experiments.spec import Spec

SPECS: tuple[Spec, ...] = ()
