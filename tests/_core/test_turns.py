"""Jobs that rest between their steps, dealt to threads."""

import threading

import pytest

from gramless._core.threads import run_round_robin


def counting(steps, result, seen=None):
    for step in range(steps):
        if seen is not None:
            seen.append((result, step))
        yield
    return result


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_job_runs_to_its_end_and_results_keep_their_order(workers):
    seen: list[tuple[int, int]] = []
    lengths = [5, 0, 3, 1, 7]
    assert run_round_robin([counting(steps, k, seen) for k, steps in enumerate(lengths)], workers) == [0, 1, 2, 3, 4]
    assert sorted(seen) == [(k, step) for k, steps in enumerate(lengths) for step in range(steps)]


def test_one_thread_gives_each_job_a_step_in_turn():
    seen: list[tuple[int, int]] = []
    run_round_robin([counting(2, k, seen) for k in range(3)], 1)
    assert seen == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]


def test_two_threads_work_at_the_same_time_on_jobs_that_rest():
    # Three jobs meet in pairs: a thread that waited for a job of its own would never come to the meeting.
    meeting = threading.Barrier(2, timeout=10)

    def meets():
        for _ in range(2):
            meeting.wait()
            yield

    assert run_round_robin([meets(), meets(), meets()], 2) == [None, None, None]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_job_raises_ends_the_others_where_they_rest(workers):
    seen: list[tuple[int, int]] = []

    def fails():
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_round_robin([fails(), counting(10**9, 1, None)], workers)
    with pytest.raises(ValueError, match="no"):
        run_round_robin([counting(10**4, 1, seen), fails()], workers)
    assert len(seen) < 10**4
