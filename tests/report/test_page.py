"""The page as text, and its parts."""

import errno
import pathlib
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramless.experiments import Table, product, specs
from gramless.report import page, write_report
from gramless.report.charts import Chart, Line, draw
from gramless.report.groups import points, said, varying
from gramless.report.png import png
from gramless.report.scales import fit_scale
from gramless.report.words import duration, label, memory, plain_number


class Outline(HTMLParser):
    """Checks that tags are closed in order and remembers them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br", "img"):
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


def test_the_page_is_well_formed_and_has_no_script(report_specs, report_records):
    seen = outline(page(report_specs, report_records))
    assert not [tag for tag, attrs in seen if tag == "script"]
    assert not [attrs for tag, attrs in seen if any(name.startswith("on") for name in attrs)]
    ids = [attrs["id"] for tag, attrs in seen if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_difference_to_the_paper_is_shown(report_specs, report_records):
    text = page(report_specs, report_records)
    best = min(
        r["metrics"]["error"]
        for r in report_records
        if r["status"] == "done" and r["params"].get("solver") == "matching_pursuit"
    )
    assert f"{best:.2f}" in text
    assert f"{best - 1.1:+.2f}".replace("-", "−") in text


def test_what_failed_and_what_is_missing_is_said(report_specs, report_records):
    text = page(report_specs, report_records, missing=7)
    assert "partial: 7 fits not run yet" in text
    assert "1 fit failed" in text
    assert "ValueError: &lt;img" in text
    assert "Not run yet." in text


def test_the_quick_form_says_what_it_is(report_specs, report_records):
    assert "The quick form" in page(report_specs, report_records, quick=True)
    assert "The quick form" not in page(report_specs, report_records)


def test_no_two_settings_share_a_name():
    assert label("landmarks") != label("n_landmarks")
    shown = {metric for spec in specs() for view in spec.views if isinstance(view, Table) for metric in view.metrics}
    assert "landmarks" not in shown  # a number under the heading "landmark rule"


def test_one_is_not_many(report_specs, report_records):
    text = page(report_specs, report_records[:1], missing=1)
    assert "1 fit<" in text
    assert "partial: 1 fit not run yet" in text
    assert "1 fits" not in text


def test_a_report_that_cannot_be_written_leaves_nothing(report_specs, tmp_path, monkeypatch):
    def full(self, text, **options):
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full)
    with pytest.raises(OSError, match=r"report\.html"):
        write_report(report_specs, [], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", [1.0, 0.001, 123_456.0])
def test_numbers_of_the_axis_stay_clear_of_its_name(scale):
    """Twelve units of text: a digit is about seven wide, the name ends at 18."""
    shapes = draw(Chart("", "x", "y", [Line("", [0, 1], [0.1 * scale, 1.1 * scale])]))["shapes"]
    ends = [shape.attributes["x"] for shape in shapes if shape.tag == "text" and "end" in shape.attributes["class"]]
    longest = max(len(plain_number(tick)) for tick in fit_scale([0.1 * scale, 1.1 * scale], 234, 14).ticks())
    assert ends
    assert all(at - 7 * longest >= 18 for at in ends)


def test_an_empty_run_has_a_page_too(report_specs):
    text = page(report_specs, [], missing=20)
    outline(text)
    assert "No fit has finished." in text


def test_an_older_page_is_replaced_in_one_piece(tmp_path, report_specs, report_records):
    path = tmp_path / "deep" / "report.html"
    write_report(report_specs, [], path)
    write_report(report_specs, report_records, path)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [child.name for child in path.parent.iterdir()] == ["report.html"]


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_text_is_escaped_wherever_it_is_put(report_specs, said, named):
    """The same tags, whatever a title, a setting or a reason says."""
    spec = replace(report_specs[3], title=said, about=named, grid=product(m=[named]))
    failed = {"status": "failed", "paper": spec.paper, "experiment": spec.name, "params": {"m": named}, "reason": said}
    plain = replace(spec, title="a", about="b")
    expected = outline(page([plain], [failed | {"params": {"m": "c"}, "reason": "d"}]))
    assert outline(page([spec], [failed])) == expected


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.booleans(),
)
def test_scales_hold_their_values_and_have_ticks(values, log):
    if log:
        values = [abs(value) + 1e-6 for value in values]
    scale = fit_scale(values, 0, 100, log=log)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 14
    assert ticks == sorted(ticks)
    assert all(scale.low * (1 - 1e-2) - 1e-6 <= tick <= scale.high * (1 + 1e-2) + 1e-6 for tick in ticks if tick > 0)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3)])
def test_png_keeps_every_pixel(shape):
    channels = shape[2] if len(shape) == 3 else 1
    pixels = bytes(range(2 * 3 * channels))
    made = png(pixels, shape)
    width, height, depth, colour = struct.unpack(">IIBB", made[16:26])
    assert (width, height, depth, colour) == (3, 2, 8, 2 if channels == 3 else 0)
    start = made.index(b"IDAT") + 4
    rows = zlib.decompress(made[start : made.index(b"IEND") - 8])
    stride = 3 * channels + 1
    assert b"".join(rows[k * stride + 1 : (k + 1) * stride] for k in range(2)) == pixels


def test_png_refuses_what_is_no_image():
    with pytest.raises(ValueError, match="5 bytes"):
        png(bytes(5), (2, 3))
    with pytest.raises(ValueError, match="one or three channels"):
        png(bytes(12), (2, 3, 2))


def test_numbers_read_well():
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
    assert set(varying(budget)) == {"method", "budget"}


def test_the_most_specific_figure_of_the_paper_wins():
    from gramless.experiments import Reference

    general, special = Reference(1.0, "a"), Reference(2.0, "b", {"J": 1})
    assert said([general, special], {"J": 1}, "error") is special
    assert said([general, special], {"J": 2}, "error") is general
    assert said([general], {"J": 2}, "accuracy") is None
