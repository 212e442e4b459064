"""Line charts as SVG: axes that contain the data, round ticks, visible lines, tooltips and no references by id."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from gramless.papers.experiments.declarations import Curve, Reference
from gramless.papers.report.charts import ChartLine, draw
from gramless.papers.report.page import data_url


def chart_of(lines, y="residual", log_y=False, **options):
    return draw(Curve("x", y, log_y=log_y), lines, **options)


def parsed(chart):
    return ElementTree.fromstring(chart)


def y_ticks(svg):
    texts = [one for one in svg.iter("text") if "text-anchor: end" in one.get("style")]
    return [float(one.text.replace(",", "").replace("\N{MINUS SIGN}", "-")) for one in texts]


def groups(svg, name):
    return [group for group in svg.iter("g") if group.get("class") == name]


def corners(path):
    """All points of a path, shifted by its transform."""
    numbers = np.array([float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", path.get("d"))]).reshape(-1, 2)
    shift = re.match(r"translate\((\S+) (\S+)\)", path.get("transform", ""))
    return numbers + ([0, 0] if shift is None else [float(shift[1]), float(shift[2])])


@pytest.mark.parametrize("values", [[99.5, 99.9, 100.0], [90.0, 95.0, 99.0], [0.0, 50.0, 100.0], [100.0, 100.0, 100.0]])
def test_axis_of_a_percentage_ends_at_100(values):
    svg = parsed(chart_of([ChartLine("", [1, 2, 3], values, [5.0, 5.0, 5.0])], "accuracy"))
    assert len(y_ticks(svg)) >= 2
    assert 0 <= min(y_ticks(svg)) <= max(y_ticks(svg)) <= 100


def test_two_points_are_not_joined():
    svg = parsed(chart_of([ChartLine("", [1, 2], [1.0, 2.0])]))
    assert groups(svg, "line") == []
    assert len(groups(svg, "dot")) == 1


@pytest.mark.parametrize("scale", [1.0, 0.001, 123_456.0])
def test_tick_labels_do_not_overlap_the_axis_label(scale):
    """In a font of 12 units, a digit is about seven wide, and the name ends at 18."""
    svg = parsed(chart_of([ChartLine("", [0, 1], [0.1 * scale, 1.1 * scale])]))
    ticks = [one for one in svg.iter("text") if "text-anchor: end" in one.get("style")]
    assert ticks
    assert all(float(one.get("x")) - 7 * len(one.text) >= 18 for one in ticks)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.booleans())
@example([5e-324], False)
@example([1e-6, 1e6], True)
@example([0.0, 0.0], True)
def test_axes_contain_all_values_and_have_ticks(values, log):
    if log:
        values = [abs(value) if abs(value) > 1e-6 else 0.0 for value in values]
    svg = parsed(chart_of([ChartLine("", list(range(len(values))), values)], log_y=log))
    for name in ("line", "dot"):
        for path in (path for group in groups(svg, name) for path in group.iter("path")):
            assert (corners(path) >= [0, 0]).all()
            assert (corners(path) <= [380, 270 - 40]).all()
    ticks = y_ticks(svg)
    assert 1 <= len(ticks) <= 14
    assert ticks == sorted(ticks)


def test_tooltips_and_colours_of_the_page():
    lines = [ChartLine("<a> & b", [1, 2, 3], [1.0, 2.0, 3.0], [0.1, 0.1, 0.1], colour=3)]
    text = chart_of(lines, levels=[Reference(2.0, "Fig. 1", spread=0.5)], at_x=[(1, 2.5, 0)])
    svg = ElementTree.fromstring(text)
    titles = [one.text for one in svg.iter("title")]
    assert titles == ["<a> & b", "<a> & b 1: 1", "<a> & b 2: 2", "<a> & b 3: 3"]
    assert "var(--c3)" in text
    assert "var(--says)" in text
    assert "#" not in text.replace("&#", "")  # neither a fixed colour nor a reference by id
    assert " id=" not in text


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3)])
def test_data_url_encodes_all_pixels(shape):
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    url = data_url(base64.b64encode(pixels.tobytes()).decode(), shape)
    content = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), pixels)
