"""Conversion of matplotlib figures to SVG elements of an HTML page.

Text is stored as text and shown in the font of the page. The colours of `COLOURS` become CSS variables such as `var(--ink)`,
so that one figure fits the light and the dark theme of the page. Elements can have tooltips.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib accepts no CSS variables, so each variable has a placeholder colour, which `to_svg` replaces by the variable.
_VARIABLES = ("ink", "soft", "faint", "grid", "card", "says", *(f"c{k}" for k in range(8)))
COLOURS = {name: f"#0102{k:02x}" for k, name in enumerate(_VARIABLES)}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_FONT_SIZE = 12


def new_axes(width: int, height: int) -> Axes:
    """Return the axes of a new figure of the given size in CSS pixels, with horizontal grid lines and no frame."""
    try:
        from matplotlib.figure import Figure
    except ImportError as reason:
        raise ImportError("pictures need matplotlib: pip install 'gramless[cli]'") from reason

    axes = Figure(figsize=(width / 72, height / 72), dpi=72).subplots()
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=COLOURS["grid"], linewidth=1)
    axes.tick_params(length=0, pad=8, labelsize=_FONT_SIZE, labelcolor=COLOURS["soft"])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["faint"])
    return axes


def to_svg(axes: Axes, label: str, css_class: str = "chart", tooltips: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the figure of the axes as an SVG element.

    `tooltips` maps the `gid` of a matplotlib artist to the texts of its points, or to one text for a line. The CSS class of
    the SVG element of the artist is the part of the `gid` before the last hyphen.
    """
    import matplotlib

    figure: Any = axes.figure
    text = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gramless"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the font of the page may have the glyph
        figure.savefig(text, format="svg", transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    definitions = {f"#{one.get('id')}": one for one in root.iter(f"{_SVG}path") if one.get("id")}
    for group in list(root.iter(f"{_SVG}g")):
        texts = (tooltips or {}).get(group.get("id", ""), ())
        shapes = [one for one in group.iter() if one.tag == f"{_SVG}use" or (one.tag == f"{_SVG}path" and not one.get("id"))]
        for shape, tooltip in zip(shapes, texts, strict=False):
            ElementTree.SubElement(shape, f"{_SVG}title").text = tooltip
        if texts:
            group.set("class", group.get("id", "").rpartition("-")[0])
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}defs", f"{_SVG}metadata"):
                parent.remove(child)
            elif child.tag == f"{_SVG}use":  # a reference to an id, which would have to be unique in the page
                _inline(child, definitions[child.attrib.pop(_LINK)])
            elif child.tag == f"{_SVG}text":
                child.set("style", re.sub(r"font[^;]*;\s*", "", child.get("style", "")))
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.tail = None
        element.text = (element.text or "").strip()
        for name in ("id", "clip-path"):
            element.attrib.pop(name, None)
        for name in {"d", "x", "y", "transform"} & set(element.attrib):
            element.set(name, re.sub(r"(\.\d\d?)\d*", r"\1", element.get(name, "")))  # pixels with two decimals suffice
    drawing = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    for name, colour in COLOURS.items():
        drawing = drawing.replace(colour, f"var(--{name})")
    _, _, width, height = root.get("viewBox", "").split()
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    head = ElementTree.Element("svg", {"class": css_class, **size, "role": "img"})
    head.set("aria-label", label)
    return ElementTree.tostring(head, encoding="unicode", short_empty_elements=False).replace("</svg>", f"{drawing}</svg>")


def _inline(use: ElementTree.Element, definition: ElementTree.Element) -> None:
    """Convert a `use` element, which refers to a path, to a copy of the path."""
    use.tag = f"{_SVG}path"
    use.set("d", definition.get("d", ""))
    use.set("style", f"{definition.get('style', '')}; {use.get('style', '')}")
    use.set("transform", f"translate({use.attrib.pop('x', '0')} {use.attrib.pop('y', '0')})")
