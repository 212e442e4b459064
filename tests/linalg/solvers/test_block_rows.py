from __future__ import annotations

import numpy as np
import pytest

from gramless.linalg.operators import DenseOperator
from gramless.linalg.solvers import Kaczmarz, KaczmarzMP, MatchingPursuit, NystromCommittee, solve
from gramless.linalg.solvers.block_rows import BlockRows

N = 23


def sequence(block_size, **settings):
    return BlockRows(DenseOperator(np.arange(float(N * N)).reshape(N, N)), block_size, np.random.RandomState(0), **settings)


@pytest.mark.parametrize("block_size", [1, 4, 5, 23, 100])
def test_rows_are_those_of_the_indices(block_size):
    blocks = sequence(block_size)
    for _ in range(60):
        idx, rows, _ = blocks.next()
        assert len(idx) == min(block_size, N)
        np.testing.assert_array_equal(rows, blocks.op.A[idx])


@pytest.mark.parametrize("block_size", [1, 4, 5])
def test_no_row_twice_before_the_shuffle(block_size):
    blocks = sequence(block_size)
    passes = []
    for _ in range(2):
        seen = [blocks.next()[0] for _ in range(N // block_size)]
        assert blocks.pass_ends
        flat = np.concatenate(seen)
        assert len(np.unique(flat)) == len(flat) == N // block_size * block_size
        passes.append([tuple(idx) for idx in seen])
    assert passes[0] != passes[1]


@pytest.mark.parametrize("block_size", [1, 4, 5, 23, 100])
def test_reused_blocks_recur_and_cover_every_row(block_size):
    blocks = sequence(block_size, reuse=True)
    grams = {}
    for _ in range(blocks.n_blocks):
        idx, _, gram = blocks.next()
        grams[tuple(idx)] = gram
    assert blocks.pass_ends
    assert len(grams) == blocks.n_blocks
    assert set(np.concatenate(list(grams))) == set(range(N))
    for _ in range(2 * blocks.n_blocks):
        idx, _, gram = blocks.next()
        assert gram is grams[tuple(idx)]


def test_factors_are_not_cached_unless_blocks_recur():
    blocks = sequence(N)
    assert blocks.next()[2] is not blocks.next()[2]


@pytest.mark.parametrize("settings", [{}, {"reuse": True}])
@pytest.mark.parametrize("steps", [1, 3, 5, 7])
def test_state_goes_on_where_it_stood(steps, settings):
    rng = np.random.RandomState(0)
    op = DenseOperator(np.eye(N))
    blocks = BlockRows(op, 4, rng, **settings)
    for _ in range(steps):
        blocks.next()
    saved, saved_rng = blocks.state(), rng.get_state()
    expected = [blocks.next()[0] for _ in range(12)]
    other = np.random.RandomState(99)
    other.set_state(saved_rng)
    resumed = BlockRows(op, 4, other, state=saved, **settings)
    for idx in expected:
        np.testing.assert_array_equal(resumed.next()[0], idx)


def test_small_blocks_are_fetched_together():
    class Counting(DenseOperator):
        calls = 0

        def rows(self, idx, out=None):
            self.calls += 1
            return super().rows(idx, out)

    op = Counting(np.eye(600))
    blocks = BlockRows(op, 1, np.random.RandomState(0))
    for _ in range(600):
        blocks.next()
    assert op.calls == 3


@pytest.mark.parametrize("bad", [0, -1, 2.0, "many"])
def test_block_size_is_checked(bad):
    A = DenseOperator(np.eye(3))
    for solver in (Kaczmarz, MatchingPursuit, KaczmarzMP, NystromCommittee):
        with pytest.raises(ValueError, match="'block_size' parameter"):
            solve(A, np.ones((3, 1)), solver(block_size=bad))
