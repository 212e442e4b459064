"""Properties of every declared experiment: it can be pickled, its grid is plain JSON, its quick form needs no file."""

import json
import pickle

import pytest

from gramless.papers.experiments.declarations import CHAPTERS, Reference, Spec, Table, product, specs
from gramless.papers.experiments.results import contains

ALL = specs("all")


def estimator(params, seed):
    raise NotImplementedError


def forms(spec):
    return (spec,) if spec.quick is None else (spec, spec.quick_form())


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: f"{spec.paper}/{spec.name}")
class TestDeclared:
    def test_can_be_pickled(self, spec):
        again = pickle.loads(pickle.dumps(spec))
        assert [again.key(*fit) for fit in again.fits()] == [spec.key(*fit) for fit in spec.fits()]

    def test_grid_is_plain_json(self, spec):
        for params in (params for form in forms(spec) for params in form.grid):
            assert json.loads(json.dumps(params)) == params

    def test_keys_are_unique(self, spec):
        for form in forms(spec):
            keys = [form.key(params, seed) for params, seed in form.fits()]
            assert keys
            assert len(set(keys)) == len(keys)

    def test_quick_form_needs_no_file(self, spec, monkeypatch, tmp_path):
        if spec.quick is None:
            pytest.skip("no quick form")
        monkeypatch.delenv("GRAMLESS_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        form = spec.quick_form()
        dataset = form.dataset(form.seeds[0])
        assert len(dataset.y_train) > 0
        assert form.estimator(form.grid[0], form.seeds[0]) is not None

    def test_texts_name_only_the_data_of_the_form(self, spec):
        """Quick forms use other data than full ones, so their texts must not name the full data."""
        for form in forms(spec):
            assert form.data_label
            assert form.heading.startswith(form.data_label)
        if spec.quick is None:
            return
        form = spec.quick_form()
        dataset = form.dataset(form.seeds[0])
        assert dataset.name.replace("_", " ").lower() in form.data_label.lower()
        text = f"{form.heading} {form.about} {form.finding}".lower()
        full = ["mnist", "cifar", "usps", "letter", "pendigits", "spambase", "bank", "60,000"]
        assert not [name for name in full if name in text]
        assert form.references == ()

    def test_headline_is_in_the_grid(self, spec):
        if spec.headline is not None:
            assert spec.headline_reason
            assert any(spec.headline.items() <= params.items() for params in spec.grid)

    def test_references_match_the_grid(self, spec):
        for reference in spec.references:
            assert any(contains(params, reference.params) for params in spec.grid), reference


def test_names_are_unique_within_a_paper():
    names = [(spec.paper, spec.name) for spec in ALL]
    assert len(set(names)) == len(names)
    assert {spec.paper for spec in ALL} == set(CHAPTERS)


def test_unknown_paper_lists_the_known_papers():
    with pytest.raises(ValueError, match="randomized, budget, risvo, prototypes, smo"):
        specs("nonesuch")


BASE = Spec("smo", "demo", "Demo", "mnist", estimator, product(C=[1, 10]), seeds=(0, 1))


def test_quick_form_has_no_references_and_uses_the_digits():
    spec = Spec("smo", "demo", "Demo", "mnist", estimator, product(C=[1]), references=(Reference(1.0, "Table 1"),))
    quick = spec.quick_form()
    assert quick.data == "digits"
    assert quick.references == ()


def test_every_paper_has_a_quick_form():
    assert {spec.paper for spec in ALL if spec.quick is not None} == {spec.paper for spec in ALL}


def test_experiment_without_quick_form():
    spec = Spec("smo", "demo", "Demo", "mnist", estimator, product(C=[1]), quick=None)
    with pytest.raises(ValueError, match="no quick form"):
        spec.quick_form()


def test_key_depends_on_the_settings_and_not_on_texts_and_views():
    from dataclasses import replace

    key = BASE.key({"C": 1}, 0)
    assert key == replace(BASE, title="Other", about="x", views=(Table(),)).key({"C": 1}, 0)
    others = [
        BASE.key({"C": 10}, 0),
        BASE.key({"C": 1}, 1),
        BASE.key({"C": 1}, 0, "cuda"),
        replace(BASE, data="usps").key({"C": 1}, 0),
        replace(BASE, folds=5).key({"C": 1}, 0),
        replace(BASE, name="other").key({"C": 1}, 0),
    ]
    assert len({key, *others}) == 7


def test_order_of_fits():
    assert [(params["C"], seed) for params, seed in BASE.fits()] == [(1, 0), (10, 0), (1, 1), (10, 1)]


def test_reference_matches_parameters():
    reference = Reference(1.1, "Fig. 2", {"solver": "cg"})
    assert contains({"solver": "cg", "C": 1}, reference.params)
    assert not contains({"solver": "smo"}, reference.params)
    assert not contains({"C": 1}, reference.params)
