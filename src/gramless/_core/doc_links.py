"""Where an estimator is described: scikit-learn's HTML form of an estimator links there."""

from __future__ import annotations

from typing import Any, TypeVar

DOCUMENTATION = "https://gramless.readthedocs.io/en/stable"

_Class = TypeVar("_Class", bound=type)


def link_documentation(cls: _Class) -> _Class:
    """Class decorator: link the HTML form to the page of the class in the reference."""
    made: Any = cls
    made._doc_link_module = "gramless"
    made._doc_link_template = f"{DOCUMENTATION}/reference/generated/{{public_name}}.html"
    made._doc_link_url_param_generator = _names
    return cls


def _names(estimator: Any) -> dict[str, str]:
    """The public name: estimators are imported from `gramless`, everything else from its package."""
    kind = type(estimator)
    package = kind.__module__.rpartition(".")[0]
    return {"public_name": f"{'gramless' if package == 'gramless.estimators' else package}.{kind.__name__}"}
