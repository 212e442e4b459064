"""Files that are whole or not there."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from gramless._core.checkpoint import StateFile
from gramless._core.files import atomic_write


def test_what_was_written_takes_the_name_at_the_end(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_write(target) as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file_alone_and_says_which_it_is(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail_half_way():
        with atomic_write(target) as part:
            part.write_text("ne")
            raise OSError(28, "the disk is full")

    with pytest.raises(OSError, match="full") as caught:
        fail_half_way()
    assert caught.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_two_writers_do_not_share_a_partial_file(tmp_path):
    with atomic_write(tmp_path / "a") as one, atomic_write(tmp_path / "a") as other:
        assert one != other
        one.write_text("1")
        other.write_text("2")
    assert (tmp_path / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_process_left_is_removed_at_the_next_start(tmp_path):
    work = (
        "import os, sys, pathlib\n"
        "from gramless._core.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1])) as part:\n"
        "    part.write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", work, str(tmp_path / "a")], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "a.b.partial").write_text("a file of the user's own")
    with atomic_write(tmp_path / "a") as part:
        part.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.b.partial"]


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path):
    target = tmp_path / ("x" * 250)
    with atomic_write(target) as part:
        part.write_text("new")
    assert target.read_text() == "new"


def state(checkpoint, value):
    checkpoint.save(np.full((2, 2), value), {"k": 3}, np.random.RandomState(0), [{"n_iter": 1}], 0.5)


def test_one_fit_at_a_time_has_a_checkpoint(tmp_path):
    """Two of them wrote to one partial file, and each went on from what the other had saved."""
    path = tmp_path / "fit.npz"
    first = StateFile(path, "problem")
    state(first, 1.0)
    work = "import sys\nfrom gramless._core.checkpoint import StateFile\nStateFile(sys.argv[1], 'problem')\n"
    second = subprocess.run([sys.executable, "-c", work, str(path)], capture_output=True, text=True, check=False)
    assert "another fit is using the checkpoint" in second.stderr
    reasons = []

    def other_thread():
        try:
            StateFile(path, "problem")
        except RuntimeError as reason:
            reasons.append(str(reason))

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert "another fit is using" in reasons[0]
    again = StateFile(path, "problem")  # this thread: its first fit has ended, by an error or by Ctrl-C
    assert again.load().W[0, 0] == 1.0
    del first
    assert (tmp_path / "fit.npz.lock").exists()  # of the second fit
    again.remove()
    assert os.listdir(tmp_path) == []
    StateFile(path, "problem").remove()


def test_a_checkpoint_of_other_bytes_is_refused(tmp_path):
    path = tmp_path / "fit.npz"
    state(StateFile(path, "problem"), 1.0)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    np.savez(path, **{**arrays, "W": arrays["W"] + 1e-9})
    with pytest.raises(ValueError, match="its checksum differs"):
        StateFile(path, "problem").load()
