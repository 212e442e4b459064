"""Folders of pictures on the command line: train, predict, evaluate, and errors for unusable folders."""

import csv
import io

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_digits

import gramless
from gramless.cli.options import EvaluateSettings, TrainSettings
from gramless.cli.pictures import train_pictures
from gramless.cli.predict import evaluate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with sixty PNG pictures of each of two digits, some of another size, one in a deeper subfolder."""
    root = tmp_path_factory.mktemp("digits")
    data = load_digits()
    for digit in (0, 1):
        (root / f"is {digit}" / "more").mkdir(parents=True)
        for i, image in enumerate(data.images[data.target == digit][:60]):
            picture = Image.fromarray((15 * image).astype(np.uint8))
            if i == 5:
                picture = picture.resize((20, 12))
            picture.save(root / f"is {digit}" / ("more" if i == 6 else "") / f"{i}.png")
    (root / "is 0" / "notes.txt").write_text("no picture")
    (root / ".hidden").mkdir()
    return root


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("model") / "model.skops"
    train_pictures(TrainSettings(folder, out=out), Console(file=io.StringIO()))
    return out


def test_train_accepts_a_folder_of_pictures(run, folder, tmp_path):
    done = run("train", folder, "--out", tmp_path / "m.skops", "--test-size", "0.25", "--json")
    assert done.code == 0
    assert done.json["rows"] == {"train": 90, "held_out": 30}
    assert done.json["classes"] == ["is 0", "is 1"]
    assert done.json["size"] == [8, 8]
    assert done.json["grey"] is True
    assert done.json["scores"][0]["value"] > 0.9
    assert "ImageClassifier" in done.err


def test_predict_accepts_a_picture_and_a_folder(run, folder, model, tmp_path):
    one = run("predict", model, folder / "is 1" / "3.png", "--proba")
    rows = list(csv.DictReader(io.StringIO(one.out)))
    assert [row["prediction"] for row in rows] == ["is 1"]
    assert float(rows[0]["p(is 0)"]) + float(rows[0]["p(is 1)"]) == pytest.approx(1, abs=1e-5)
    many = run("predict", model, folder, "--out", tmp_path / "out.csv", "--json")
    assert many.json["rows"] == 120
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert np.mean([row["prediction"] in row["picture"] for row in rows]) > 0.95


def test_predictions_are_those_of_the_classifier(run, folder, model):
    held = gramless.load(model)
    pictures = sorted((folder / "is 0").glob("*.png"))[:5]
    # One of another size is brought to the model's.
    images = np.stack([np.asarray(Image.open(p).resize((8, 8), Image.Resampling.LANCZOS)) for p in pictures])
    expected = held.classifier.predict(images).tolist()
    got = [run("predict", model, p).out.strip().splitlines()[1].rsplit(",", 1)[1] for p in pictures]
    assert got == expected


def test_colour_and_large_pictures(run, tmp_path):
    rng = np.random.default_rng(0)
    for kind, channel in (("red", 0), ("blue", 2)):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for i in range(12):
            image = rng.integers(0, 90, (60, 200, 3)).astype(np.uint8)
            image[10:40, 20 + 5 * i : 90 + 5 * i, channel] += 150
            Image.fromarray(image).save(tmp_path / "data" / kind / f"{i}.jpg")
    done = run("train", tmp_path / "data", "--out", tmp_path / "m.skops", "--json")
    assert done.json["size"] == [64, 19]
    assert done.json["grey"] is False
    assert done.json["scores"][0]["value"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "x"], "--target does not apply"),
        (["--gamma", "1"], "--gamma does not apply"),
        (["--C", "-1"], "The 'C' parameter of ImageClassifier must be"),
        (["--test-size", "2"], "between 0 and 1"),
    ],
)
def test_table_options_raise_for_pictures(run, folder, tmp_path, options, words):
    done = run("train", folder, "--out", tmp_path / "m.skops", *options)
    assert done.code == 3
    assert words in done.err


def test_a_model_of_pictures_is_described_and_not_served(run, model):
    done = run("info", model)
    assert done.code == 0
    for shown in ("ImageClassifier", "grey pictures, 8 x 8 pixels", "is 0 (", "accuracy"):
        assert shown in done.out, shown
    assert run("info", model, "--json").json["model"] == "PictureModel"
    done = run("serve", model)
    assert (done.code, "contains a PictureModel, which cannot be served" in done.err) == (3, True)


def test_unusable_folders_and_files_raise(run, folder, model, tmp_path):
    assert "two classes or more" in run("train", tmp_path, "--out", tmp_path / "m.skops").err
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert "broken.png" in run("predict", model, tmp_path / "broken.png").err
    whole = (folder / "is 0" / "5.png").read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    assert "half.png" in run("predict", model, tmp_path / "half.png").err
    assert "No such file" in run("predict", model, tmp_path / "missing.png").err
    (tmp_path / "empty").mkdir()
    assert "has no pictures" in run("predict", model, tmp_path / "empty").err


@pytest.fixture
def others(tmp_path):
    """Return a folder with new pictures, one of them of a class that the model does not have."""
    data = load_digits()
    for digit, count in ((0, 30), (1, 20), (7, 1)):
        (tmp_path / "others" / f"is {digit}").mkdir(parents=True)
        for i, image in enumerate(data.images[data.target == digit][-count:]):
            Image.fromarray((15 * image).astype(np.uint8)).save(tmp_path / "others" / f"is {digit}" / f"{i}.png")
    return tmp_path / "others"


def test_evaluate_reads_a_folder_in_batches(model, others):
    by_seven, at_once = (evaluate(EvaluateSettings(model, others), Console(quiet=True), batch_rows=n) for n in (7, 1000))
    assert by_seven["rows"] == at_once["rows"] == 51
    for one, other in zip(by_seven["scores"], at_once["scores"], strict=True):
        assert one["value"] == pytest.approx(other["value"])


def test_evaluate_equals_the_score_of_the_classifier(run, model, others):
    done = run("evaluate", model, others, "--json")
    assert done.code == 0
    assert done.json["rows"] == 51
    assert not done.json["trained_on_this_file"]
    assert "1 pictures are of classes that are not classes of the model" in " ".join(done.err.split())
    scores = {score["metric"]: score for score in done.json["scores"]}
    pictures = sorted(others.rglob("*.png"))
    held = gramless.load(model).classifier
    images, truth = np.stack([np.asarray(Image.open(p)) for p in pictures]), np.array([p.parent.name for p in pictures])
    assert scores["accuracy"]["value"] == pytest.approx(np.mean(held.predict(images) == truth))
    assert scores["accuracy"]["baseline"] in (pytest.approx(30 / 51), pytest.approx(20 / 51))
    chance = held.predict_proba(images)[np.arange(51), np.searchsorted(held.classes_, truth).clip(max=1)]
    chance[truth == "is 7"] = np.finfo(float).eps
    assert scores["log loss"]["value"] == pytest.approx(-np.log(chance).mean(), rel=1e-3)


def test_evaluate_recognises_the_training_folder(run, folder, model, others, tmp_path):
    assert "was trained on" in " ".join(run("evaluate", model, folder).out.split())
    folder.rename(tmp_path / "elsewhere")
    try:
        assert run("evaluate", model, tmp_path / "elsewhere", "--json").json["trained_on_this_file"]
    finally:
        (tmp_path / "elsewhere").rename(folder)
    assert "was trained on" not in run("evaluate", model, others).out


def test_unusable_folders_raise_in_evaluate(run, folder, model, others, tmp_path):
    picture = folder / "is 0" / "3.png"
    assert "subfolder of pictures for each class" in " ".join(run("evaluate", model, picture).err.split())
    assert "for tables" in run("evaluate", model, folder, "--target", "x").err
    assert "there are 0" in " ".join(run("evaluate", model, folder / "is 0" / "more").err.split())
    for name in ("is 0", "is 1"):
        (others / name).rename(tmp_path / name)
    done = run("evaluate", model, others)
    assert done.code == 3
    assert "the model has 'is 0', 'is 1'; the folder has 'is 7'" in " ".join(done.err.split())


def test_table_models_raise_for_pictures(run, folder, tmp_path):
    gramless.save(gramless.LSSVC().fit([[0.0], [1.0]], [0, 1]), tmp_path / "other.skops")
    done = run("predict", tmp_path / "other.skops", folder / "is 0" / "3.png")
    assert done.code == 3
    assert "gramless train FOLDER" in done.err
