"""Writers of datasets in the formats of the published files."""

import bz2
import gzip
import io
import tarfile
import zipfile

import numpy as np


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def lines(rows, separator=","):
    return "\n".join(separator.join(map(str, row)) for row in rows) + "\n"


def number(value):
    return f"{value:.17g}"


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return gzip.compress(head + array.tobytes(), 1)


def mnist(z):
    return [idx(z[name]) for name in ("x_train", "y_train", "x_test", "y_test")]


def cifar10(images_train, y_train, images_test, y_test):
    def records(images, labels):
        planes = np.moveaxis(images.reshape(-1, 32, 32, 3), 3, 1).reshape(len(images), -1)
        return np.column_stack([labels.astype(np.uint8), planes.astype(np.uint8)]).tobytes()

    size = len(y_train) // 5
    members = {
        f"cifar-10-batches-bin/data_batch_{k + 1}.bin": records(
            images_train[k * size : (k + 1) * size], y_train[k * size : (k + 1) * size]
        )
        for k in range(5)
    }
    members["cifar-10-batches-bin/test_batch.bin"] = records(images_test, y_test)
    members["cifar-10-batches-bin/readme.html"] = b"<html>"
    return [tarred(members)]


def usps(z):
    def half(x, y):
        flat = x.reshape(len(x), -1) / 1000
        text = "".join(
            f"{label + 1} " + " ".join(f"{c + 1}:{v:g}" for c, v in enumerate(row) if v != 0) + "\n"
            for row, label in zip(flat, y, strict=True)
        )
        return bz2.compress(text.encode())

    return [half(z["x_train"], z["y_train"]), half(z["x_test"], z["y_test"])]


def letter(z):
    x = np.concatenate([z["x_train"], z["x_test"]])
    y = np.concatenate([z["y_train"], z["y_test"]])
    rows = ([chr(ord("A") + label), *row] for row, label in zip(x.tolist(), y.tolist(), strict=True))
    return [zipped(**{"letter-recognition.data": lines(rows), "Index": "x"})]


def pendigits(z):
    def half(x, y):
        return "".join(",".join(f"{v:3d}" for v in [*row, label]) + "\n" for row, label in zip(x, y, strict=True))

    return [
        zipped(
            **{
                "pendigits.tra": half(z["x_train"].tolist(), z["y_train"].tolist()),
                "pendigits.tes": half(z["x_test"].tolist(), z["y_test"].tolist()),
            }
        )
    ]


def spambase(z):
    rows = ([*map(number, row), label] for row, label in zip(z["x"], z["y"], strict=True))
    return [zipped(**{"spambase.data": lines(rows)})]


def wine(z):
    rows = ([label + 1, *map(number, row)] for row, label in zip(z["x"], z["y"].tolist(), strict=True))
    return [zipped(**{"wine.data": lines(rows)})]


def wine_quality(z):
    def table(x, y):
        heading = ";".join(f'"column {k}"' for k in range(12)) + "\n"
        rows = ([*map(number, row), label] for row, label in zip(x, y, strict=True))
        return heading + lines(rows, ";")

    members = {f"winequality-{c}.csv": table(z[f"x_{c}"], z[f"y_{c}"]) for c in ("red", "white")}
    return [zipped(**members)]


def bank(csv_text):
    inner = zipped(**{"bank-full.csv": csv_text, "bank.csv": "x"})
    return [zipped(**{"bank.zip": inner, "bank-additional.zip": b"x"})]


def california_housing(z):
    rows = ([*map(number, row), number(value)] for row, value in zip(z["x"], z["y"], strict=True))
    return [tarred({"CaliforniaHousing/cal_housing.data": lines(rows).encode()})]
