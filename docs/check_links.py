"""Checks that every internal link of the built site has an existing target; `make docs` runs this script."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Parser that collects the link targets and the links of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, given in attrs:
            if name in ("id", "name") and given:
                self.ids.add(given)
            if name in ("href", "src") and given:
                self.links.append(given)


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def broken(root: Path) -> list[str]:
    """Return the internal links without a target, each with the page that contains it."""
    pages = {path: read(path) for path in root.rglob("*.html") if "_static" not in path.parts}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            fragment = unquote(parts.fragment)
            if not target.exists() or (
                fragment and target in pages and fragment not in pages[target].ids and fragment != "top"
            ):
                found.append(f"{path.relative_to(root)}: {link}")
    return found


if __name__ == "__main__":
    missing = broken(Path(sys.argv[1]).resolve())
    if missing:
        sys.exit("\n".join(["links without a target:", *sorted(set(missing))]))
    print("all internal links have a target")
