"""Files that are whole or not there."""

import pytest

from gramless._runtime.files import replaced


def test_what_was_written_takes_the_name_at_the_end(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with replaced(target) as part:
        part.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_error_leaves_the_old_file_alone_and_says_which_it_is(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail_half_way():
        with replaced(target) as part:
            part.write_text("ne")
            raise OSError(28, "the disk is full")

    with pytest.raises(OSError, match="full") as caught:
        fail_half_way()
    assert caught.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
