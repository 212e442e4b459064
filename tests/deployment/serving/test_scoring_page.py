"""The page with a form for the columns of a model, in a browser."""

import pytest
from running_servers import running

from gramless.cli.serve import load_scorer
from gramless.deployment.serving.app import scoring_app


@pytest.fixture
def watched(browser):
    """Return a page with the width of a phone that records console messages and errors."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.errors = []
    page.on("console", lambda message: page.errors.append(message.text))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    yield page
    context.close()


def test_form_predicts_during_input(watched, address):
    requests = []
    watched.on("request", lambda wanted: requests.append(wanted.url))
    watched.goto(address)
    watched.locator("#prediction").get_by_text("birch").wait_for()
    labels = watched.locator("#inputs label > span").all_inner_texts()
    assert labels == ["height (m)", "leaves", "soil", "planted"]
    assert not watched.locator("#reasons").is_visible()
    watched.get_by_label("height (m)").fill("4.5")
    watched.get_by_label("leaves").fill("25")
    watched.get_by_label("soil").select_option("loam")
    watched.locator("#prediction").get_by_text("cedar").wait_for()
    assert watched.locator("#classes li").count() == 3
    assert watched.locator("#classes li.best span").inner_text() == "cedar"
    assert watched.locator("#reasons").is_visible()
    watched.get_by_label("leaves").fill("4000")
    watched.get_by_text("leaves: out of range").wait_for()
    watched.get_by_label("leaves").fill("25")
    watched.get_by_label("height (m)").fill("3.0")
    watched.wait_for_timeout(600)
    moved = watched.locator("#moved li span").all_inner_texts()
    assert "leaves" in moved
    assert set(moved) <= {"height (m)", "leaves", "soil"}
    watched.get_by_label("leaves").fill("")  # a missing value
    watched.get_by_label("soil").select_option("(missing)")
    watched.wait_for_timeout(400)
    assert watched.locator("#message").inner_text() == ""
    wide = watched.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0
    assert watched.errors == []
    assert all(url.startswith((address, "data:")) for url in requests)


def test_reference_of_the_http_interface(watched, address):
    requests = []
    watched.on("request", lambda wanted: requests.append(wanted.url))
    watched.goto(f"{address}/docs")
    watched.get_by_text("Predictions of the first model").click()
    assert watched.get_by_text("Range of the training rows").first.is_visible()
    assert '"height (m)"' in watched.locator("pre").first.inner_text()
    assert watched.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert watched.errors == []
    assert all(url.startswith((address, "data:")) for url in requests)


def test_model_selection_and_interval(watched, address):
    watched.goto(address)
    watched.locator("#prediction").get_by_text("birch").wait_for()
    watched.locator("#models").select_option("weights")
    watched.get_by_text("90 % interval:").wait_for()
    assert watched.locator("h1").inner_text() == "Predict weight"
    assert not watched.locator("#chances").is_visible()
    watched.get_by_label("leaves").fill("12")
    watched.locator("#moved li").first.wait_for()
    # The form shows the typical height with six digits: the effect of this rounding is not listed.
    assert watched.locator("#moved li span").all_inner_texts() == ["leaves"]
    assert watched.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert watched.errors == []


def test_page_requests_token(watched, files):
    with running(scoring_app({"plain": files / "plain.skops"}, load_scorer, token="sesame")) as address:
        watched.goto(address)
        watched.get_by_label("Token of this server").fill("sesame")
        watched.get_by_role("button", name="Open").click()
        watched.locator("#classes li.best").wait_for()
        assert watched.get_by_label("x0").is_visible()


def test_column_names_are_escaped(watched, tmp_path):
    import numpy as np
    import pandas as pd

    import gramless

    name = "<img src=x onerror=document.title=1>"
    X = pd.DataFrame({name: np.arange(20.0), "b": np.arange(20.0)[::-1]})
    gramless.save(gramless.LSSVC().fit(X, np.repeat(["<b>low</b>", "<b>high</b>"], 10)), tmp_path / "m.skops")
    with running(scoring_app({"m": tmp_path / "m.skops"}, load_scorer)) as address:
        watched.goto(address)
        watched.locator("#prediction").get_by_text("<b>").wait_for()
        assert name in watched.locator("#inputs label > span").all_inner_texts()
        assert watched.title() == "gramless: predict"
        assert watched.locator("img").count() == 0
