"""The page about the rooms names files that are there, and every room; no path goes back to a room that it has left."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "gramless"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = sorted(
    path.name + ("/" if path.is_dir() else "")
    for path in PACKAGE.iterdir()
    if path.name not in ("__init__.py", "__pycache__") and (path.is_dir() or path.suffix == ".py")
)
PICTURE = re.search(r"```\n(.*?)```", PAGE, re.DOTALL).group(1)
PATHS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE))


def files_in(text):
    """What stands in backticks and looks like a place under the package."""
    return [name for name in re.findall(r"`([^`\s]+)`", text) if re.fullmatch(r"[\w/]+(\.py|/)", name)]


@pytest.mark.parametrize("name", sorted(set(files_in(PAGE)) - {"src/gramless/"}))
def test_a_file_that_is_named_exists(name):
    assert (ROOT / name if name.startswith("tests/") else PACKAGE / name).exists()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_in_the_picture(room):
    assert re.search(rf"(^|\s){re.escape(room)}(\s|$)", PICTURE, re.MULTILINE)


def test_the_picture_has_the_layers_of_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [sorted(re.findall(r"\w+", layer)) for layer in contract["layers"]]
    drawn = [re.findall(r"(?:^|\s)(\w+)(?:/|\.py)(?=\s|$)", line) for line in PICTURE.splitlines()]
    assert [sorted(line) for line in drawn] == layers


def test_the_five_paths_are_there():
    assert list(PATHS) == ["fit", "predict", "partial_fit", "train", "reproduce"]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_goes_back_to_a_room_that_it_has_left(path):
    steps = re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", PATHS[path], re.DOTALL | re.MULTILINE)
    assert len(steps) >= 4
    rooms = [files_in(step)[0].split("/")[0] for step in steps[1:]]
    visits = [room for room, _ in itertools.groupby(rooms)]
    assert len(visits) == len(set(visits))
