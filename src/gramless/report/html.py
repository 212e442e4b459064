"""HTML that is escaped by construction: every string that is not already markup is escaped when it is put
in.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

VOID = {"img", "meta", "br", "path", "line", "rect", "circle", "polygon"}


class Markup(str):
    """Text that is markup already; only `element` and `join` make it."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """`value` escaped, unless it is markup."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def join(parts: Iterable[Any]) -> Markup:
    """Parts one after the other; None is left out."""
    return Markup("".join(text(part) for part in parts if part is not None))


def element(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """One element. ``class_`` and ``for_`` lose their underscore, other underscores become hyphens.

    Examples
    --------
    >>> from gramless.report.html import element
    >>> print(element("p", "1 < 2", class_="note"))
    <p class="note">1 &lt; 2</p>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = join(children)
    if name in VOID and not inside:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{inside}</{name}>")
