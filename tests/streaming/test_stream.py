"""Streams: the same rows whatever they come from, in batches of any size, and bad rows named."""

import gzip
import itertools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from gramless import FourierLSSVC, NystromLSSVC, NystromLSSVR, Stream
from gramless.streaming.delimited import CsvSource
from gramless.streaming.parquet import open_parquet
from gramless.streaming.stream import read_ahead

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

N = 1000


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 3)), rng.integers(0, 4, size=N)


def as_table(X, y):
    return pa.table({"a": X[:, 0], "y": y, "b": X[:, 1], "c": X[:, 2]})


def text(X, y, header=True, delimiter=","):
    lines = [delimiter.join(["a", "b", "c", "y"])] if header else []
    lines += [delimiter.join([*(repr(float(v)) for v in row), str(label)]) for row, label in zip(X, y, strict=True)]
    return "\n".join(lines) + "\n"


def write(kind, folder, X, y):
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        parquet.write_table(as_table(X, y), path, row_group_size=300)
    elif kind == "npz":
        np.savez(path, x=X, y=y)
    elif kind == "compressed.npz":
        np.savez_compressed(path, X=X.astype(np.float32), y=y)
    elif kind == "columns.npz":
        np.savez_compressed(path, X=np.asfortranarray(X), y=y)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(text(X, y).encode()))
    else:
        path.write_text(text(X, y, delimiter="\t" if kind == "tsv" else ","))
    return path


FILES = ["csv", "csv.gz", "tsv", "parquet", "npz", "compressed.npz", "columns.npz"]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(("size", "start"), [(1, 990), (64, 0), (257, 299), (300, 300), (5000, 0), (10, N)])
def test_a_file_gives_its_rows_in_order(tmp_path, rows, kind, size, start):
    X, y = rows
    stream = Stream(write(kind, tmp_path, X, y))
    batches = list(stream.batches(size, start))
    assert [len(b) for b in batches] == [min(size, N - at) for at in range(start, N, size)]
    assert [b.start for b in batches] == list(range(start, N, size))
    if batches:
        np.testing.assert_allclose(np.concatenate([b.X for b in batches]), X[start:], atol=1e-6)
        np.testing.assert_array_equal(np.concatenate([b.y for b in batches]), y[start:])


@pytest.mark.parametrize("kind", FILES)
def test_a_sample_of_a_file_is_some_of_its_rows(tmp_path, rows, kind):
    X, y = rows
    stream = Stream(write(kind, tmp_path, X, y))
    sampled, labels, _ = stream.sample(50, np.random.RandomState(0), batch_rows=128)
    distance, nearest = np.abs(sampled[:, None] - X[None]).max(axis=2).min(axis=1), None
    nearest = np.abs(sampled[:, None] - X[None]).max(axis=2).argmin(axis=1)
    assert distance.max() < 1e-6
    assert len(set(nearest)) == 50
    np.testing.assert_array_equal(labels, y[nearest])
    assert 250 < nearest.mean() < 750  # from all of the file, not from its head
    assert len(stream.sample(N + 1, np.random.RandomState(0))[1]) == N


def test_every_row_has_the_same_chance():
    X = np.arange(40.0)[:, None]
    stream = Stream([(X[i : i + 7], X[i : i + 7, 0]) for i in range(0, 40, 7)])
    rng = np.random.RandomState(0)
    counts = sum(np.bincount(stream.sample(10, rng, batch_rows=9)[1].astype(int), minlength=40) for _ in range(800))
    assert counts.min() > 150
    assert counts.max() < 250  # 200 expected, standard deviation 12


def test_batches_of_an_iterable_are_cut_and_joined(rows):
    X, y = rows
    cuts = [0, 3, 3, 500, 501, N]
    weights = np.linspace(0, 1, N)
    pieces = [(X[a:b], y[a:b], weights[a:b]) for a, b in itertools.pairwise(cuts)]
    for data in (pieces, iter(pieces), (p for p in pieces)):
        batches = list(Stream(data).batches(128, start=100))
        np.testing.assert_array_equal(np.concatenate([b.X for b in batches]), X[100:])
        np.testing.assert_array_equal(np.concatenate([b.weights for b in batches]), weights[100:])


def test_the_head_of_a_generator_is_read_again():
    pieces = ((np.full((4, 2), i), np.full(4, i)) for i in range(5))
    stream = Stream(pieces)
    assert not stream.repeatable
    np.testing.assert_array_equal(stream.sample(6, np.random.RandomState(0))[1], [0, 0, 0, 0, 1, 1])
    assert sum(len(b) for b in stream.batches(3)) == 20


def test_sparse_batches(rows):
    X, y = rows
    batches = list(Stream([(sp.csr_matrix(X[:10]), y[:10]), (sp.csc_matrix(X[10:30]), y[10:30])]).batches(16))
    np.testing.assert_array_equal(np.vstack([b.X.toarray() for b in batches]), X[:30])


@pytest.mark.parametrize("kind", FILES)
def test_a_fit_from_a_file_is_the_fit_from_arrays(tmp_path, rows, kind):
    X, y = rows
    path = write(kind, tmp_path, X, y)
    model = NystromLSSVC(landmarks=X[:30], gamma=0.5, batch_size=100, dtype="float64")
    from_arrays = model.fit(X, y).decision_function(X)
    np.testing.assert_allclose(model.fit(str(path)).decision_function(X), from_arrays, atol=1e-5)
    np.testing.assert_allclose(model.fit(Stream(path)).decision_function(X), from_arrays, atol=1e-5)


def test_a_memmap_is_read_in_batches(tmp_path, rows):
    X, y = rows
    on_disk = np.memmap(tmp_path / "x.bin", dtype=np.float32, mode="w+", shape=X.shape)
    on_disk[:] = X
    values = X.sum(axis=1)
    from_disk = NystromLSSVR(n_landmarks=40, gamma=0.5, random_state=0).fit(on_disk, values)
    in_memory = NystromLSSVR(n_landmarks=40, gamma=0.5, random_state=0).fit(X.astype(np.float32), values)
    np.testing.assert_allclose(from_disk.predict(X), in_memory.predict(X), atol=1e-6)
    on_disk[700, 1] = np.nan
    with pytest.raises(ValueError, match=r"row 700 of .*x\.bin has NaN or infinity in column 1"):
        NystromLSSVR(landmarks=X[:10], gamma=0.5).fit(on_disk, values)
    assert NystromLSSVC(landmarks=X[:10], class_weight="balanced").fit(on_disk[:500], y[:500]).classes_.size == 4


def spoil(content, line, new):
    lines = content.splitlines()
    lines[line] = new
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("1.0,oops,2.0,1", r"rows\.csv, row 700 \(line 701\) has 'oops' in column 'b', which is not a number"),
        ("1.0,2.0,1", r"rows\.csv, row 700 \(line 701\) has 3 columns; the file has 4"),
        ("1.0,2.0,3.0,4.0,1", r"rows\.csv, row 700 \(line 701\) has 5 columns; the file has 4"),
        ("1.0,nan,2.0,1", r"rows\.csv, row 700 \(line 701\) has NaN or infinity in column 'b'"),
        ("1.0,,2.0,1", r"rows\.csv, row 700 \(line 701\) has NaN or infinity in column 'b'"),
        ("1.0,inf,2.0,1", r"rows\.csv, row 700 \(line 701\) has NaN or infinity in column 'b'"),
        ("1.0,3.0,2.0,", r"rows\.csv, row 700 \(line 701\) has a target that is missing"),
    ],
)
def test_a_bad_row_of_a_text_file_is_named(tmp_path, rows, new, message):
    path = tmp_path / "rows.csv"
    path.write_text(spoil(text(*rows), 700, new))
    with pytest.raises(ValueError, match=message):
        NystromLSSVC(landmarks=rows[0][:10], batch_size=64).fit(path)


def test_a_target_that_turns_to_text_is_named(tmp_path, rows):
    path = tmp_path / "rows.csv"
    path.write_text(spoil(text(*rows), 900, "1.0,2.0,3.0,many"))
    with pytest.raises(ValueError, match=r"row 900 \(line 901\) has the target 'many', unlike the rows before"):
        list(CsvSource(path, piece_rows=100).read(64, 0))


@pytest.mark.parametrize(("types", "expected"), [(("float32", "uint8"), "float32"), (("float32", "int32"), "float64")])
def test_columns_of_a_parquet_file_in_single_precision_stay_in_it(tmp_path, types, expected):
    path = tmp_path / "rows.parquet"
    columns = {f"x{j}": pa.array(np.arange(6).astype(kind)) for j, kind in enumerate(types)}
    parquet.write_table(pa.table({**columns, "y": np.arange(6)}), path)
    (batch,) = Stream(path).batches(10)
    assert batch.X.dtype == expected
    np.testing.assert_array_equal(batch.X, np.arange(6)[:, None] * [1, 1])
    parquet.write_table(pa.table({"x": pa.array([1, None], pa.uint8()), "y": [0, 1]}), path)
    with pytest.raises(ValueError, match="row 2 has NaN"):
        list(Stream(path).batches(10))


@pytest.mark.parametrize("row_group", [20_000, 200_000])
def test_a_parquet_file_is_not_read_ahead_as_a_whole(tmp_path, row_group):
    path, pool = tmp_path / "rows.parquet", pa.default_memory_pool()
    X = np.random.default_rng(0).normal(size=(200_000, 20))
    parquet.write_table(as_table(X, X[:, 0]), path, row_group_size=row_group, compression="none", use_dictionary=False)
    before = pool.bytes_allocated()
    allocated = [pool.bytes_allocated() - before for _ in Stream(path).batches(1000)]
    assert max(allocated) < path.stat().st_size / 3


def test_a_bad_row_of_a_parquet_file_is_named(tmp_path, rows):
    X = rows[0].copy()
    X[650, 2] = np.nan
    with pytest.raises(ValueError, match=r"rows\.parquet, row 651 has NaN or infinity in column 'c'"):
        NystromLSSVC(landmarks=X[:10], batch_size=64).fit(write("parquet", tmp_path, X, rows[1]))
    path = tmp_path / "text.parquet"
    parquet.write_table(pa.table({"a": ["x", "z"], "y": [0, 1]}), path)
    with pytest.raises(ValueError, match=r"text\.parquet: column 'a' has type string, not numbers"):
        Stream(path)


def test_a_bad_row_of_an_npz_file_or_a_batch_is_named(tmp_path, rows):
    X = rows[0].copy()
    X[650, 2] = np.inf
    with pytest.raises(ValueError, match=r"rows\.npz, row 651 of 'x' has NaN or infinity in column 2"):
        NystromLSSVC(landmarks=X[:10]).fit(write("npz", tmp_path, X, rows[1]))
    batches = [(X[i : i + 100], rows[1][i : i + 100]) for i in range(0, N, 100)]
    with pytest.raises(ValueError, match="row 50 of batch 6 has NaN or infinity in column 2"):
        NystromLSSVC(landmarks=X[:10], batch_size=128).fit(batches)


def test_batches_that_do_not_fit_together(rows):
    X, y = rows
    for batches, message in (
        ([(X[:5], y[:5]), (X[:5, :2], y[:5])], "different numbers of columns|columns, and earlier"),
        ([(X[:5], y[:4])], "batch 0 has 5 rows and 4 targets"),
        ([(X[0], y[0:1])], "X of batch 0 has 1 dimensions"),
        ([(np.array([["a", "b"]]), y[:1])], "row 0 of batch 0 has 'a' in column 0"),
        ([(X[:3], y[:3], [1, -1, 1])], "row 1 of batch 0 has the weight"),
    ):
        with pytest.raises(ValueError, match=message):
            list(Stream(batches).batches(8))
    with pytest.raises(TypeError, match="batch 0 is not"):
        list(Stream([3.0]).batches(8))


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("none.csv", "a,b\n1,2\n", None, "no column named 'y', 'target', 'label'"),
        ("two.csv", "y,label\n1,2\n", None, "more than one column"),
        ("missing.csv", "a,b\n1,2\n", "z", "no column named 'z'"),
        ("bare.csv", "1,2\n3,4\n", None, "no header line"),
        ("far.csv", "1,2\n3,4\n", 2, "column 2 does not exist"),
        ("same.csv", "a,a,y\n1,2,3\n", None, "two columns of the same name"),
        ("empty.csv", "", None, "is empty"),
        ("broken.parquet", "not parquet", "y", "not a complete Parquet file"),
        ("broken.npz", "not npz", None, "not a complete npz file"),
        ("what.xyz", "1", None, "has an unknown file type"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, name, content, target, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        Stream(path, target)


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Stream(tmp_path / "nothing.csv")


def test_a_text_file_without_header_by_position(tmp_path, rows):
    X, y = rows
    path = tmp_path / "bare.csv"
    path.write_text(text(X, y, header=False))
    (batch,) = Stream(path, -1).batches(N)
    np.testing.assert_allclose(batch.X, X)
    path.write_text(spoil(text(X, y, header=False), 2, "1,x,3,4"))
    with pytest.raises(ValueError, match=r"row 3 \(line 3\) has 'x' in column 1"):
        list(Stream(path, -1).batches(N))


@pytest.mark.parametrize("header", [False, True])
def test_a_text_label_in_the_first_line_is_no_header(tmp_path, rows, header):
    X, _ = rows
    labels = np.where(np.arange(N) % 2, "yes", "no")
    path = tmp_path / "labels.csv"
    path.write_text(text(X, labels, header=header))
    (batch,) = Stream(path, -1).batches(N + 1)
    np.testing.assert_allclose(batch.X, X)
    np.testing.assert_array_equal(batch.y, labels)
    if not header:
        with pytest.raises(ValueError, match="no header line"):
            Stream(path)


def test_numbered_columns_and_a_named_target_are_a_header(tmp_path):
    path = tmp_path / "numbered.csv"
    path.write_text("0,1,label\n0.5,0.25,a\n1.5,1.25,b\n")
    for target in (None, -1, "label"):
        (batch,) = Stream(path, target).batches(9)
        np.testing.assert_array_equal(batch.y, ["a", "b"])


def test_empty_lines_are_no_rows(tmp_path, rows):
    lines = text(*rows).splitlines()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([*lines[:400], "", "", *lines[400:], ""]) + "\n\n")
    for start in (0, 398, 399, 400, 700, N):
        read = [b.X for b in Stream(path).batches(64, start)]
        np.testing.assert_allclose(np.concatenate([np.empty((0, 3)), *read]), rows[0][start:])
    for bad, message in (("1.0,nan,2.0,1", "has NaN"), ("1.0,oops,2.0,1", "has 'oops'")):
        path.write_text("\n".join([*lines[:400], "", "", *lines[400:600], bad]) + "\n")
        with pytest.raises(ValueError, match=rf"row 600 \(line 603\) {message}"):
            list(Stream(path).batches(64))


@pytest.mark.parametrize(("content", "target"), [("y,a\n1,2\n0,3\n", None), ("1,2\n0,3\n", 0), ("a, y\n2, 1\n3, 0\n", "y")])
def test_a_byte_order_mark_and_spaces_are_no_part_of_a_name_or_number(tmp_path, content, target):
    for encoding in ("utf-8", "utf-8-sig"):
        path = tmp_path / "rows.csv"
        path.write_text(content, encoding=encoding)
        (batch,) = Stream(path, target).batches(9)
        np.testing.assert_array_equal(batch.X, [[2], [3]])
        np.testing.assert_array_equal(batch.y, [1, 0])


def test_whole_targets_may_be_followed_by_fractions(tmp_path, rows):
    values = np.where(np.arange(N) < 700, 3.0, 0.5)
    path = tmp_path / "rows.csv"
    path.write_text(text(rows[0], ["3" if v == 3 else "0.5" for v in values]))
    for start in (0, 650, 800):
        batches = list(CsvSource(path, piece_rows=100).read(64, start))
        np.testing.assert_allclose(np.concatenate([X for X, _, _ in batches]), rows[0][start:])
        np.testing.assert_array_equal(np.concatenate([y for _, y, _ in batches]), values[start:])


@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
def test_features_and_targets_stored_column_by_column(tmp_path, rows, order):
    X, Z = rows[0], np.column_stack([rows[1], -rows[1]])
    np.savez(tmp_path / "rows.npz", X=np.asarray(X, order=order[0]), y=np.asarray(Z, order=order[1]))
    batches = list(Stream(tmp_path / "rows.npz").batches(128))
    np.testing.assert_array_equal(np.concatenate([b.X for b in batches]), X)
    np.testing.assert_array_equal(np.concatenate([b.y for b in batches]), Z)


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path, rows):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(rows[0], columns=list("abc"))
    frame["y"] = rows[1]
    path = tmp_path / "rows.parquet"
    frame[frame["a"] > 0].to_parquet(path)  # writes the numbers of the rows that are left
    (batch,) = Stream(path).batches(N)
    np.testing.assert_array_equal(batch.X, rows[0][rows[0][:, 0] > 0])
    frame.set_index("y").to_parquet(path)
    (batch,) = Stream(path, "y").batches(N)
    np.testing.assert_array_equal(batch.y, rows[1])
    assert batch.X.shape == (N, 3)


def test_tables_and_other_sparse_forms_by_position(rows):
    pd = pytest.importorskip("pandas")
    X, y = rows
    shuffled = np.random.default_rng(0).permutation(N)
    frame, series = pd.DataFrame(X, index=shuffled), pd.Series(y, index=shuffled)
    sampled, labels, _ = Stream(frame, series).sample(50, np.random.RandomState(0))
    for expected, got in zip(Stream(X, y).sample(50, np.random.RandomState(0)), (sampled, labels), strict=False):
        np.testing.assert_array_equal(got, expected)
    bad = X.copy()
    bad[7, 2] = np.nan
    for form in (sp.coo_matrix, sp.csc_matrix):
        (batch,) = Stream(form(X), y).batches(N)
        np.testing.assert_array_equal(batch.X.toarray(), X)
        with pytest.raises(ValueError, match="row 7 of X has NaN or infinity in column 2"):
            list(Stream(form(bad), y).batches(N))


def test_what_is_wrong_with_the_head_of_a_generator_is_said(rows):
    X, y = rows
    bad = X.copy()
    bad[250, 1] = np.nan
    for batches, error, message in (
        ([1.0], TypeError, "batch 0 is not"),
        ([(X, None)], ValueError, "batch 0 has no targets"),
        ([(bad[i : i + 100], y[i : i + 100]) for i in range(0, N, 100)], ValueError, "row 50 of batch 2 has NaN"),
        ([], ValueError, "has no rows"),
        ([(X, y, np.zeros(N))], ValueError, "all sample weights are zero"),
    ):
        for machine in (NystromLSSVC(n_landmarks=100), FourierLSSVC(n_components=10)):
            with pytest.raises(error, match=message):
                machine.fit(batch for batch in batches)


def test_a_file_without_rows_features_or_a_column_for_y(tmp_path, rows):
    X, y = rows
    np.savez(tmp_path / "no_rows.npz", X=X[:0], y=y[:0])
    np.savez(tmp_path / "one_target.npz", X=X, y=np.array(1))
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    (tmp_path / "no_features.csv").write_text("y\n0\n1\n")
    for name, target, error, message in (
        ("no_rows.npz", None, ValueError, r"no_rows\.npz has no rows"),
        ("one_target.npz", None, ValueError, "'X' has 1000 rows and 'y' has none"),
        ("no_features.csv", None, ValueError, "0 feature"),
        ("rows.npz", y, TypeError, "name or position of a column, not ndarray"),
        ("no_features.csv", y, TypeError, "name or position of a column, not ndarray"),
    ):
        with pytest.raises(error, match=message):
            NystromLSSVC().fit(tmp_path / name, target)
    with pytest.raises(ValueError, match="y to be passed"):
        NystromLSSVC().fit(Stream(X))


def test_pickles_are_not_opened(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, X=np.ones((2, 2)), y=np.array(["a", 1], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        list(Stream(path).batches(8))


def test_reading_ahead_overlaps_and_stops():
    started = threading.Event()

    def numbers():
        for i in range(10):
            if i == 1:
                started.set()
            yield i

    ahead = read_ahead(numbers())
    assert next(ahead) == 0
    assert started.wait(5)  # the second item is made while the first is in use
    ahead.close()
    assert not any(t.name == "gramless-read-ahead" for t in threading.enumerate())


def test_what_the_reader_raises_is_raised_where_it_is_read():
    def broken():
        yield 1
        raise OSError("the disk is gone")

    ahead = read_ahead(broken())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_memory_error_while_reading_parquet_is_not_a_damaged_file(tmp_path):
    parquet.write_table(pa.table({"a": [1.0], "y": [0]}), tmp_path / "small.parquet")
    with pytest.raises(MemoryError), open_parquet(tmp_path / "small.parquet"):
        raise MemoryError
