"""The page in a browser: wide and narrow windows, light and dark colour schemes."""

import pytest

from gramless.papers.datasets import CATALOGUE
from gramless.papers.report import write_report

CIFAR10_CLASSES = CATALOGUE["cifar10"].fields["class_names"]


@pytest.fixture(params=[(1280, 900, "light"), (390, 844, "light"), (390, 844, "dark")], ids=str)
def opened(request, browser, report_path):
    width, height, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.messages = []
    page.requests = []
    page.on("console", lambda message: page.messages.append(message.text))
    page.on("pageerror", lambda error: page.messages.append(str(error)))
    page.on("request", lambda wanted: page.requests.append(wanted.url))
    page.goto(report_path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    yield page
    context.close()


def test_no_console_messages_and_no_requests(opened):
    opened.wait_for_load_state("load")
    assert opened.messages == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_markup_in_texts_is_not_executed(opened):
    assert opened.evaluate("window.hacked") is None
    assert opened.locator("main script").count() == 0
    assert opened.locator("details.experiment p", has_text="onerror").count() >= 1


def test_all_images_and_charts_are_rendered(opened):
    images = opened.locator("img")
    assert images.count() == 61  # the gallery and one atom
    assert opened.evaluate("[...document.images].every(i => i.complete && i.naturalWidth >= 2)")
    boxes = opened.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(s => getComputedStyle(s).display !== 'none')"
        ".map(s => [s.getBoundingClientRect().width, s.getBoundingClientRect().height,"
        " s.querySelectorAll('g.line > path').length])"
    )
    assert len(boxes) == 6
    assert all(width > 250 and height > 150 and lines >= 1 for width, height, lines in boxes)


def test_lines_stay_inside_their_charts(opened):
    outside = opened.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(s => getComputedStyle(s).display !== 'none')"
        ".filter(s => { const b = s.getBoundingClientRect();"
        " return [...s.querySelectorAll('path,circle,polygon,text')].some(e => { const r = e.getBoundingClientRect();"
        " return r.left < b.left - 1 || r.right > b.right + 1 || r.top < b.top - 1 || r.bottom > b.bottom + 1 }) })"
        ".length"
    )
    assert outside == 0


def test_no_element_is_wider_than_the_window(opened):
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # What is wider than the screen scrolls within its own frame.
    wide = opened.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.scroll')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_font_size_in_charts(opened):
    sizes = opened.evaluate(
        "[...document.querySelectorAll('svg.chart')].filter(s => getComputedStyle(s).display !== 'none').map(s =>"
        " s.getBoundingClientRect().width / s.viewBox.baseVal.width"
        " * parseFloat(getComputedStyle(s.querySelector('text')).fontSize))"
    )
    assert all(10 <= size <= 16 for size in sizes)


def test_links_of_the_contents_open_their_target(opened):
    opened.evaluate("document.querySelectorAll('details.experiment').forEach(d => { d.open = false })")
    opened.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    links = opened.locator("nav a")
    targets = [links.nth(k).get_attribute("href") for k in range(links.count())]
    assert {"#errors", "#randomized", "#randomized-steps", "#budget-curve", "#papers", "#data", "#machine"} <= set(targets)
    for k, target in enumerate(targets):
        links.nth(k).click()
        assert opened.evaluate("location.hash") == target
        opened.wait_for_function(f"document.querySelector('{target}').getBoundingClientRect().top < 844")
    assert opened.locator("#budget-curve").evaluate("e => e.open")


def test_experiments_are_closed_initially_and_open_together(browser, report_path):
    page = browser.new_page()
    page.goto(report_path.as_uri())
    folded = "[...document.querySelectorAll('details.experiment')].map(d => d.open)"
    assert not any(page.evaluate(folded))
    page.get_by_role("button", name="unfold all").click()
    assert all(page.evaluate(folded))
    page.close()


def test_filter_shows_matching_experiments(browser, report_path):
    page = browser.new_page()
    page.goto(report_path.as_uri())
    page.locator("#filter").fill("accuracy")
    seen = "[...document.querySelectorAll('details.experiment')].filter(d => !d.hidden).map(d => d.id)"
    assert page.evaluate(seen) == ["budget-curve"]
    assert page.locator("nav li[data-to='randomized-steps']").is_hidden()
    page.locator("#filter").fill("")
    assert len(page.evaluate(seen)) == 4
    page.close()


def test_commands_are_visible(opened):
    first = opened.locator("details.again code").first
    assert first.inner_text().startswith("gramless reproduce randomized --only steps --where")


def test_confusion_matrix_fits_on_a_phone(browser, report_specs, report_records, tmp_path):
    named = [
        {**r, "confusion": {**r["confusion"], "labels": list(CIFAR10_CLASSES)}} if "confusion" in r else r
        for r in report_records
    ]
    page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
    page.goto(write_report(report_specs, named, tmp_path / "report.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    outside = page.evaluate(
        "[...document.querySelectorAll('.confusion td, .confusion th')].filter(e => { const r = e.getBoundingClientRect();"
        " return r.right > innerWidth || r.width < 14 }).length"
    )
    page.context.close()
    assert outside == 0


def test_internal_links_have_targets(opened):
    broken = opened.evaluate(
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById("
        "a.getAttribute('href').slice(1))).length"
    )
    assert broken == 0


def test_colours_of_the_dark_scheme(browser, report_path):
    shades = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        page.goto(report_path.as_uri())
        shades[scheme] = page.evaluate(
            "['backgroundColor', 'color'].map(p => getComputedStyle(document.body)[p]"
            ".match(/[0-9]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3)"
        )
        context.close()
    paper, ink = shades["light"]
    assert paper - ink > 150
    paper, ink = shades["dark"]
    assert ink - paper > 150


def test_confusion_matrix_with_long_class_names_fits_beside_its_gallery(browser, report_specs, report_records, tmp_path):
    named = [
        {**record, "confusion": {**record["confusion"], "labels": list(CIFAR10_CLASSES)}}
        if "confusion" in record
        else record
        for record in report_records
    ]
    path = write_report(report_specs, named, tmp_path / "report.html")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    frames = page.evaluate(
        "[...document.querySelectorAll('.views .confusion')].map(t => [t.offsetWidth, t.parentElement.clientWidth])"
    )
    context.close()
    assert frames
    assert all(table <= frame for table, frame in frames)


@pytest.mark.parametrize(("n_images", "columns"), [(10, 2), (40, 1)])
def test_long_gallery_takes_the_full_width(browser, report_specs, report_records, tmp_path, n_images, columns):
    records = [
        {**record, "misclassified": {**record["misclassified"], "images": record["misclassified"]["images"][:1] * n_images}}
        for record in report_records
        if record.get("misclassified")
    ]
    path = write_report(report_specs, records, tmp_path / "report.html")
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    seen = page.evaluate(
        "[...document.querySelectorAll('figure:has(.gallery b)')].map(f => "
        "Math.round(f.parentElement.clientWidth / f.clientWidth))"
    )
    context.close()
    assert seen
    assert set(seen) == {columns}
