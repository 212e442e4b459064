"""Small tables as they are found in practice, each with the column types, warnings and errors that are expected."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

ROWS = 120
_rng = np.random.default_rng(0)
X = _rng.normal(size=ROWS).round(3)
CITY = np.array(["Bern", "Genf", "Zug"])[_rng.integers(0, 3, ROWS)]
NOISE = _rng.normal(size=ROWS)
LABEL = np.where(X + (CITY == "Bern") + 0.7 * NOISE > 0, "yes", "no")
VALUE = (3 * X + (CITY == "Bern") + 0.3 * NOISE).round(3)
DAYS = pd.Timestamp("2021-01-01") + pd.to_timedelta(_rng.integers(0, 900, ROWS), unit="D")
AMOUNT = np.round(np.exp(7 + X), 2)
WORDS = np.array(
    [
        "red",
        "green",
        "blue",
        "small",
        "large",
        "old",
        "new",
        "fast",
        "slow",
        "heavy",
        "light",
        "round",
        "flat",
        "soft",
        "hard",
        "cold",
    ]
)
SENTENCES = np.array([" ".join(_rng.choice(WORDS, 7)) + f" no. {k}" for k in range(ROWS)])
PRAISE = np.array(
    [f"{text} {'excellent' if one == 'yes' else 'broken'}" for text, one in zip(SENTENCES, LABEL, strict=True)]
)
BASE = {"x": "number", "city": "category"}


def table(y=LABEL, **columns):
    """Return a data frame of the two ordinary columns, further ones, and the target."""
    return pd.DataFrame({"x": X, "city": CITY, **columns, "y": y})


def csv(frame, **options):
    return frame.to_csv(index=False, **options)


@dataclass(frozen=True)
class MessyTable:
    """Content of a file, and what training on it must report.

    `content` is text, bytes or a data frame, which is written in the format of `suffix`. `types` are the types of all
    columns, including `"left out"`. Each string of `warnings` must occur in the messages of the command and in the warnings
    of the estimator; without any, there must be no warning. `notes` are messages of the command only. For `exit_code` 3,
    `error` is a part of the message. `wrong_row` has values of one row that a prediction must reject, and the column.
    """

    content: Callable[[], Any]
    types: dict[str, str] = field(default_factory=dict)
    suffix: str = ".csv"
    target: str = "y"
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    error: str = ""
    wrong_value: tuple[str, Any] | None = None
    options: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)
    in_python: bool = True


def with_extreme_targets():
    y = VALUE.copy()
    y[::60] *= 1000
    return csv(table(y))


def with_repeated_header():
    return csv(table(z=X[::-1])).replace("x,city,z,y", "x,city,x,y", 1)


def missing_in(values, every=9, mark=""):
    return [mark if k % every == 0 else value for k, value in enumerate(values)]


TABLES = {
    "dates in ISO format": MessyTable(
        lambda: csv(table(day=missing_in(DAYS.strftime("%Y-%m-%d")))), BASE | {"day": "date"}, wrong_value=("day", "soon")
    ),
    "dates with time and zone": MessyTable(
        lambda: csv(table(at=DAYS.strftime("%Y-%m-%dT07:30:00+02:00"))), BASE | {"at": "date"}
    ),
    "dates with points": MessyTable(
        lambda: csv(table(day=DAYS.strftime("%d.%m.%Y"))), BASE | {"day": "date"}, wrong_value=("day", "32.01.2020")
    ),
    "dates with the month first": MessyTable(lambda: csv(table(day=DAYS.strftime("%m/%d/%Y"))), BASE | {"day": "date"}),
    "dates of unknown order": MessyTable(
        lambda: csv(table(day=[f"{d.day % 12 + 1:02}/{d.month:02}/{d.year}" for d in DAYS])),
        BASE | {"day": "date"},
        warnings=("day or the month is first",),
    ),
    "amounts in dollars": MessyTable(
        lambda: csv(table(price=[f"${a:,.2f}" for a in AMOUNT])), BASE | {"price": "number"}, wrong_value=("price", "cheap")
    ),
    "amounts in euros": MessyTable(
        lambda: csv(table(price=[f"{a:,.2f} €".translate(str.maketrans(",.", ".,")) for a in AMOUNT]), sep=";"),
        BASE | {"price": "number"},
        read={"sep": ";"},
    ),
    "decimal commas": MessyTable(
        lambda: csv(table(z=NOISE.round(2)), sep=";", decimal=","), BASE | {"z": "number"}, read={"sep": ";", "decimal": ","}
    ),
    "percentages": MessyTable(lambda: csv(table(share=[f"{v:.0f} %" for v in 50 + 9 * NOISE])), BASE | {"share": "number"}),
    "dashes for missing numbers": MessyTable(
        lambda: csv(table(z=missing_in(NOISE.round(2), mark="-"), w=missing_in(NOISE.round(3), 7, "n/a"))),
        BASE | {"z": "number", "w": "number"},
    ),
    "words among numbers": MessyTable(
        lambda: csv(table(z=missing_in(_rng.integers(0, 9, ROWS), 50, "about 5"))), BASE | {"z": "category"}
    ),
    "codes with leading zeros": MessyTable(
        lambda: csv(table(code=np.array(["01", "02", "2A"])[_rng.integers(0, 3, ROWS)])), BASE | {"code": "category"}
    ),
    "spellings of true and false": MessyTable(
        lambda: csv(table(b=np.array(["TRUE", "true", "False"])[_rng.integers(0, 3, ROWS)])), BASE | {"b": "category"}
    ),
    "row numbers": MessyTable(
        lambda: table().to_csv(),
        {"Unnamed: 0": "left out"} | BASE,
        warnings=("row numbers",),
    ),
    "identifiers in a sorted file": MessyTable(
        lambda: csv(table().sort_values("y").assign(id=1000 + 3 * np.arange(ROWS))),
        BASE | {"id": "number"},
        target="y",
        warnings=("'id' increases", "'id' alone"),
    ),
    "copy of the target": MessyTable(
        lambda: csv(table(code=np.where(LABEL == "yes", 17, 4) + NOISE.round(1) / 100)),
        BASE | {"code": "number"},
        warnings=("'code' alone",),
    ),
    "target in another unit": MessyTable(
        lambda: csv(table(VALUE, pounds=(2.2046 * VALUE).round(3))),
        BASE | {"pounds": "number"},
        warnings=("'pounds' alone",),
    ),
    "constant and empty columns": MessyTable(
        lambda: csv(table(planet="Earth", nothing="")),
        BASE | {"planet": "left out", "nothing": "left out"},
        warnings=("the same value everywhere", "no value anywhere"),
    ),
    "text that decides": MessyTable(lambda: csv(table(note=PRAISE)), BASE | {"note": "text"}),
    "text that says nothing": MessyTable(
        lambda: csv(table(note=SENTENCES)), BASE | {"note": "left out"}, warnings=("words do not predict",)
    ),
    "text in quotes with line breaks": MessyTable(
        lambda: csv(table(note=[text.replace(" ", "\n", 1) + ', "quoted"' for text in PRAISE])), BASE | {"note": "text"}
    ),
    "repeated header": MessyTable(with_repeated_header, BASE | {"x.1": "number"}, notes=("more than one column named 'x'",)),
    "headers with spaces and brackets": MessyTable(
        lambda: csv(table().rename(columns={"x": "[bold] height (m)", "city": " where? "})),
        {"[bold] height (m)": "number", "where? ": "category"},
        read={"skipinitialspace": True},
    ),
    "byte order mark and semicolons": MessyTable(lambda: csv(table(), sep=";").encode("utf-8-sig"), BASE, read={"sep": ";"}),
    "rare class": MessyTable(
        lambda: csv(table(np.where(np.arange(ROWS) < 4, "fraud", "ok"))), BASE, notes=("average precision of fraud",)
    ),
    "extreme targets": MessyTable(with_extreme_targets, BASE, warnings=("targets are extreme",)),
    "rows without a target": MessyTable(
        lambda: csv(table(missing_in(LABEL))), BASE, notes=("14 rows without 'y' are left out",), in_python=False
    ),
    "counts as target": MessyTable(
        lambda: csv(table(np.clip((5 + 2 * X + NOISE).round(), 0, 10).astype(int))),
        BASE,
        notes=("values of the target are classes; --task regression",),
    ),
    "many rare categories": MessyTable(
        lambda: csv(table(shop=[f"shop {k % 50}" for k in range(ROWS)])), BASE | {"shop": "category"}
    ),
    "more columns than rows": MessyTable(
        lambda: csv(table(**{f"z{k}": np.roll(NOISE, k).round(2) for k in range(150)})[:60]),
        BASE | {f"z{k}": "number" for k in range(150)},
    ),
    "twelve rows": MessyTable(lambda: csv(table()[:12]), BASE),
    "Excel": MessyTable(lambda: table(day=DAYS), BASE | {"day": "date"}, suffix=".xlsx"),
    "JSON lines without some keys": MessyTable(
        lambda: "\n".join(
            row.dropna().to_json() for _, row in table(z=[np.nan if k % 5 == 0 else k % 7 for k in range(ROWS)]).iterrows()
        ),
        BASE | {"z": "number"},
        suffix=".jsonl",
    ),
    "Feather with categories": MessyTable(
        lambda: table(grade=pd.Categorical(_rng.integers(1, 4, ROWS))), BASE | {"grade": "category"}, suffix=".feather"
    ),
    "every text differs in the target": MessyTable(
        lambda: csv(table(SENTENCES)), exit_code=3, error="different values: too many to be classes", in_python=False
    ),
    "one value in the target": MessyTable(lambda: csv(table("yes")), exit_code=3, error="one"),
    "no usable column": MessyTable(
        lambda: csv(pd.DataFrame({"a": 1, "id": np.arange(ROWS), "y": LABEL})), exit_code=3, error="row numbers"
    ),
    "infinite number": MessyTable(lambda: csv(table(z=missing_in(NOISE, 60, "inf"))), exit_code=3, error="infinity"),
    "numbers that are too large": MessyTable(
        lambda: csv(table(z=missing_in(NOISE, 60, 1e300))), exit_code=3, error="too large"
    ),
    "target that is missing": MessyTable(
        lambda: csv(table()), target="z", exit_code=3, error="has no column 'z'; it has", in_python=False
    ),
    "rows of different lengths": MessyTable(
        lambda: csv(table()) + "1,2,3,4,5,6\n", exit_code=3, error="cannot be read", in_python=False
    ),
    "Latin-1 text": MessyTable(
        lambda: csv(table(y=np.where(LABEL == "yes", "schön", "grau"))).encode("latin-1"),
        exit_code=3,
        error="not UTF-8",
        in_python=False,
    ),
    "header without rows": MessyTable(lambda: "x,city,y\n", exit_code=3, error="usable rows", in_python=False),
    "empty file": MessyTable(lambda: "", exit_code=3, error="is empty", in_python=False),
}
