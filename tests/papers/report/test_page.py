"""The HTML text of the page, and the functions that format its values."""

import errno
import json
import pathlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from statistics import stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless.papers.experiments.declarations import PAPERS, Curve, Table, product, specs
from gramless.papers.experiments.results import Results, on_one_device, points
from gramless.papers.report import page, write_report
from gramless.papers.report.charts import figures
from gramless.papers.report.formatting import (
    CHOSEN_BY_CROSS_VALIDATION,
    CHOSEN_ON_THE_TEST_ROWS,
    duration,
    headline,
    label,
    memory,
    paper_value,
    plain_number,
    varying_among,
)
from gramless.papers.report.page import command
from gramless.papers.report.peers import peers

RESULTS = pathlib.Path(__file__).parents[3] / "benchmarks" / "results"


class Outline(HTMLParser):
    """Parser that checks that tags are closed in order and stores them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag != "link":
            assert self.open.pop() == tag


def outline(text):
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser.seen


def test_page_is_well_formed_and_has_one_inline_script(report_specs, report_records):
    seen = outline(page(report_specs, report_records))
    assert [attrs for tag, attrs in seen if tag == "script"] == [{}]  # ours, inside the page
    assert not [attrs for tag, attrs in seen if any(name.startswith("on") for name in attrs)]
    ids = [attrs["id"] for tag, attrs in seen if "id" in attrs]
    assert len(ids) == len(set(ids))


def of_one_setting(records, **params):
    return [r for r in records if r["status"] == "done" and params.items() <= r["params"].items()]


def test_headline_is_the_mean_and_spread_over_the_seeds_of_one_setting(report_specs, report_records):
    """The smallest error of all fits would be optimistic."""
    budget = report_specs[1]
    done = [r for r in report_records if r["paper"] == "budget"]
    found = headline(budget, done)
    errors = {
        share: [r["metrics"]["error"] for r in of_one_setting(done, method="budget", budget=share)]
        for share in (0.2, 0.6, 1.0)
    }
    others = [r["metrics"]["error"] for r in done if r["params"]["method"] != "budget"]
    assert min(min(e) for e in errors.values()) < found.point.mean("error") or min(others) < found.point.mean("error")
    means = {tuple(p.params.items()): p.mean("error") for p in points(done)}
    assert found.point.mean("error") == min(means.values())
    assert found.chosen == CHOSEN_ON_THE_TEST_ROWS
    text = page(report_specs, report_records)
    spread = stdev(found.point.values("error"))
    assert f"<b>{found.point.mean('error'):.2f} ± {spread:.2f}</b><small> 3 seeds</small>" in text
    assert CHOSEN_ON_THE_TEST_ROWS in text


def test_declared_setting_is_the_headline_for_any_error(report_specs, report_records):
    spec = report_specs[0]
    done = [r for r in report_records if r["paper"] == "randomized"]
    found = headline(spec, done)
    assert found.point.params == {"solver": "matching_pursuit", "block_size": 500}
    assert found.chosen.startswith("declared")


def test_headline_by_cross_validation_precedes_headline_by_test_error(report_specs, report_records):
    done = [r for r in report_records if r["paper"] == "budget"]
    validated = [{**r, "metrics": {**r["metrics"], "cv_error": -r["metrics"]["error"]}} for r in done]
    found = headline(report_specs[1], validated)
    assert found.chosen == CHOSEN_BY_CROSS_VALIDATION
    assert found.point.mean("error") == max(p.mean("error") for p in points(done))


def test_fits_on_two_devices_count_once(report_specs, report_records):
    done = [r for r in report_records if r["paper"] == "randomized"]
    faster = [{**r, "device": "cuda", "hardware": {**r["hardware"], "gpu": "H200"}} for r in done]
    assert len(points(done + faster)) == 2 * len(points(done))
    assert on_one_device(done + faster) == done
    assert on_one_device(done[1:] + faster) == [*done[1:], faster[0]]
    more = [*faster, {**faster[0], "seed": 1}]
    assert on_one_device(done + more) == [*done[1:], faster[0], more[-1]]
    text = page(report_specs[:1], done + faster)
    assert "H200, " in text.partition('<footer id="machine">')[2]
    assert "H200" not in text.partition('<footer id="machine">')[0]


def test_captions_equal_the_rows_of_the_table(report_specs, report_records):
    text = page(report_specs, report_records)
    (record,) = of_one_setting(report_records, solver="matching_pursuit", block_size=500)
    caption = f"solver matching pursuit, block size 500, seed 0: {record['metrics']['error']:.2f} % error"
    assert text.count(caption) == 2  # the confusion matrix and the gallery
    row = re.search(r'<th scope="row">matching pursuit</th><th scope="row">500</th><td class="number ours">([0-9.]+)', text)
    assert row.group(1) == f"{record['metrics']['error']:.2f}"


def test_the_difference_to_the_paper_is_shown(report_specs, report_records):
    text = page(report_specs, report_records)
    (record,) = of_one_setting(report_records, solver="matching_pursuit", block_size=500)
    assert f"{record['metrics']['error'] - 1.1:+.2f}".replace("-", "−") in text


def test_warnings_that_differ_in_numbers_are_listed_once(report_specs, report_records):
    text = page(report_specs, report_records)
    assert text.count("ConvergenceWarning") == 1
    assert "in 22 fits: randomized steps, budget curve" in text


def test_row_has_the_command_that_repeats_its_fit(report_specs, report_records):
    point = points(of_one_setting(report_records, solver="kaczmarz", block_size=100))[0]
    line = command(report_specs[0], point, quick=True)
    assert (
        line == "gramless reproduce randomized --only steps --where solver=kaczmarz --where block_size=100 --seed 0 --quick"
    )
    assert line in page(report_specs, report_records, quick=True)


def test_records_are_linked_and_their_fields_described(report_specs, report_records):
    text = page(report_specs, report_records, results="results.jsonl")
    assert '<a href="results.jsonl">' in text
    stored = [record for path in RESULTS.glob("*/results.jsonl") for record in Results(path).records()]
    assert all(f"<code>{field}</code>" in text for field in {field for record in stored for field in record})


def test_titles_of_the_papers(report_specs):
    text = page(report_specs, [])
    for paper in PAPERS.values():
        assert paper.title in text
    assert "@misc{prototypes," in text
    assert "doi" not in text.lower()  # the texts give none
    assert "arxiv" not in text.lower()


def test_a_quick_page_has_no_verdicts():
    quick = [spec.quick_form() for spec in specs("smo") if spec.quick is not None]
    assert "How a verdict is made" not in page(quick, [], quick=True)
    assert "How a verdict is made" in page(specs("smo"), [])


def test_tables_of_other_packages_use_the_benchmark_records(report_specs):
    text = page(report_specs, [], benchmarks=RESULTS)
    records = json.loads((RESULTS / "svm_cpu.json").read_text())["records"]
    fits = {r["method"]: r for r in records if (r["case"], r["C"]) == ("usps", 1.0)}
    intel = fits["scikit-learn-intelex"]["fit_seconds"]
    assert duration(intel) in text
    assert f"{intel / fits['gramless']['fit_seconds']:.1f}" in text
    assert "mean rank" in text


def test_errors_on_tables_are_those_of_the_methods_with_records_of_all_tables(tmp_path):
    keys = ("a/0/gramless", "a/0/trees", "a/0/trees, tuned", "a/1/gramless", "b/0/gramless", "b/0/trees")
    errors = (0.1, 0.2, 0.0, 0.3, 5.0, 4.0)
    about = {"a": {"kind": "classes", "rows": 100}, "b": {"kind": "values", "rows": 200}}
    results = {key: {"error": error, **about[key[0]]} for key, error in zip(keys, errors, strict=True)}
    (tmp_path / "tables.json").write_text(json.dumps({"results": results}))
    (shown,) = peers(tmp_path)
    assert shown["heads"] == ["table", "gramless", "trees"]
    mean_ranks, *rows = shown["rows"]
    assert mean_ranks == ["mean rank", "1.50", "1.50"]
    assert rows == [["a, 100 rows", "10.0 %", "20.0 %"], ["b, 200 rows", "5", "4"]]


def test_curve_of_two_points_has_no_figure(report_specs, report_records):
    done = [r for r in report_records if r["paper"] == "budget" and r["params"]["budget"] != 0.6]
    assert figures(Curve("budget", "accuracy"), report_specs[1], done) == []


def test_failed_and_missing_fits_are_reported(report_specs, report_records):
    text = page(report_specs, report_records, missing=7)
    assert "partial: 7 fits not run yet" in text
    assert "1 fit failed" in text
    assert "ValueError: &lt;img" in text
    assert "Not run yet." in text


def test_quick_page_states_its_purpose(report_specs, report_records):
    assert "need a run without --quick" in page(report_specs, report_records, quick=True)
    assert "need a run without --quick" not in page(report_specs, report_records)


def test_labels_are_unique():
    assert label("landmarks") != label("n_landmarks")
    shown = {metric for spec in specs() for view in spec.views if isinstance(view, Table) for metric in view.metrics}
    assert "landmarks" not in shown  # a number under the heading "landmark rule"


def test_singular_of_counted_nouns(report_specs, report_records):
    text = page(report_specs, report_records[:1], missing=1)
    assert "· 1 fit ·" in text
    assert "partial: 1 fit not run yet" in text
    assert "1 fits" not in text


def test_failed_write_leaves_no_file(report_specs, tmp_path, monkeypatch):
    def full(self, text, **options):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full)
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(report_specs, [], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_page_without_records(report_specs):
    text = page(report_specs, [], missing=20)
    outline(text)
    assert "No fit has finished." in text


def test_existing_page_is_replaced_atomically(tmp_path, report_specs, report_records):
    path = tmp_path / "deep" / "report.html"
    write_report(report_specs, [], path)
    write_report(report_specs, report_records, path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [child.name for child in path.parent.iterdir()] == ["report.html"]


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_all_texts_are_escaped(report_specs, said, named):
    """Titles, settings and reasons of failures do not change the tags of the page."""
    spec = replace(report_specs[3], title=said, about=named, grid=product(m=[named]))
    failed = {"status": "failed", "paper": spec.paper, "experiment": spec.name, "params": {"m": named}, "reason": said}
    plain = replace(spec, title="a", about="b")
    expected = outline(page([plain], [failed | {"params": {"m": "c"}, "reason": "d"}]))
    assert without_words(outline(page([spec], [failed]))) == without_words(expected)


def without_words(seen):
    """Return the tags without the attribute that has the text for the filter."""
    return [(tag, {name: given for name, given in attrs.items() if name != "data-filter-text"}) for tag, attrs in seen]


def test_formats_of_numbers():
    assert [duration(s) for s in (0.0123, 0.5, 12.3, 300, 9000)] == ["12 ms", "0.50 s", "12 s", "5 min", "2.5 h"]
    assert [memory(m) for m in (153.4, 2345)] == ["153 MB", "2.35 GB"]
    assert [plain_number(n) for n in (5, 5.0, 0.25, 1e-6, 60000, 1e8, True, "x")] == [
        "5",
        "5",
        "0.25",
        "1e-6",
        "60,000",
        "1e8",
        "True",
        "x",
    ]


def test_seeds_are_averaged(report_records):
    budget = [record for record in report_records if record["paper"] == "budget"]
    grouped = points(budget)
    assert len(grouped) == 6
    assert all(len(point.records) == 3 for point in grouped)
    assert grouped[0].mean("error") == pytest.approx(sum(grouped[0].values("error")) / 3)
    assert grouped[0].spread("error") > 0
    assert set(varying_among([record["params"] for record in budget])) == {"method", "budget"}


def test_most_specific_value_of_the_paper_is_used():
    from gramless.papers.experiments.declarations import Reference

    general, special = Reference(1.0, "a"), Reference(2.0, "b", {"J": 1})
    assert paper_value([general, special], {"J": 1}, "error") is special
    assert paper_value([general, special], {"J": 2}, "error") is general
    assert paper_value([general], {"J": 2}, "accuracy") is None
