"""The same constructor parameter is described in the same words by every public estimator.

Two rules. Every description of a parameter begins with the same sentence. Where the documented types are equal too, the
descriptions are equal throughout: facts about one estimator belong to its Notes.
"""

from collections import defaultdict

import pytest
from numpydoc.docscrape import ClassDoc

import gramless


def descriptions(classes):
    """Return a list of (class name, documented type without its default, description) for each parameter name."""
    found = defaultdict(list)
    for cls in classes:
        for parameter in ClassDoc(cls)["Parameters"]:
            text = " ".join(" ".join(parameter.desc).split())
            for name in parameter.name.split(", "):
                found[name].append((cls.__name__, parameter.type.partition(", default=")[0], text))
    return found


def first_sentence(text):
    """Return the text up to the first full stop that ends a sentence."""
    return text.partition(". ")[0].rstrip(".")


def differences(entries):
    """Return the groups of class names whose descriptions should be equal and are not."""
    by_sentence, by_type = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for cls, kind, text in entries:
        by_sentence[first_sentence(text)].append(cls)
        by_type[kind][text].append(cls)
    different = [dict(by_sentence)] if len(by_sentence) > 1 else []
    return different + [dict(texts) for texts in by_type.values() if len(texts) > 1]


ESTIMATORS = [
    value for name in sorted(gramless._EXPORTS) if isinstance(value := getattr(gramless, name), type) and name != "Stream"
]
PARAMETERS = {name: entries for name, entries in descriptions(ESTIMATORS).items() if len(entries) > 1}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_one_wording_for_each_parameter(name):
    assert differences(PARAMETERS[name]) == []


def test_different_wording_is_detected():
    same = ("A", "int", "Number of rows."), ("B", "int or None", "Number of rows. None means all.")
    assert differences(same) == []
    assert differences([*same, ("C", "int", "Number of rows. Positive.")])
    assert differences([*same, ("C", "str", "How many rows.")])
