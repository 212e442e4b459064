"""Every link inside the built site leads to a page, and to a place on it, that is there: `make docs` runs it."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The targets and the links of one page."""

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
    """Links that lead nowhere, with the page that has them."""
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
            place = unquote(parts.fragment)
            if not target.exists() or (place and target in pages and place not in pages[target].ids and place != "top"):
                found.append(f"{path.relative_to(root)}: {link}")
    return found


if __name__ == "__main__":
    lost = broken(Path(sys.argv[1]).resolve())
    if lost:
        sys.exit("\n".join(["links that lead nowhere:", *sorted(set(lost))]))
    print("every link inside the site leads somewhere")
