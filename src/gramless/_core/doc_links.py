"""Link from scikit-learn's HTML representation of an estimator to its page in the reference."""

from __future__ import annotations

from typing import Any, TypeVar

DOCUMENTATION = "https://gramless.readthedocs.io/en/stable"

_Class = TypeVar("_Class", bound=type)


def link_documentation(cls: _Class) -> _Class:
    """Decorate an estimator class so that its HTML representation links to its page in the reference."""
    linked: Any = cls
    linked._doc_link_module = "gramless"
    linked._doc_link_template = f"{DOCUMENTATION}/reference/generated/{{public_name}}.html"
    linked._doc_link_url_param_generator = _url_parameters
    return cls


def _url_parameters(estimator: Any) -> dict[str, str]:
    """Return the public name: estimators are exported by `gramless`, other classes by their package."""
    cls = type(estimator)
    package = cls.__module__.rpartition(".")[0]
    return {"public_name": f"{'gramless' if package == 'gramless.estimators' else package}.{cls.__name__}"}
