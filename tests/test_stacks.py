"""Products and factors of stacks of matrices in blocks, against those of NumPy."""

import numpy as np
import pytest

from tsucb.numeric.stacks import BLOCK, gram, inverse_roots, lower_roots, product


@pytest.mark.parametrize("size", [3, BLOCK, BLOCK + 1, 3 * BLOCK - 7])
@pytest.mark.parametrize("stack", [(), (5,), (0,)])
def test_products_and_factors_are_those_of_numpy(size: int, stack: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(*stack, size, size)), rng.normal(size=(size, size + 5))
    lower = np.tril(left)
    np.testing.assert_allclose(product(left, right), left @ right, atol=1e-12)
    np.testing.assert_allclose(product(lower, right), lower @ right, atol=1e-12)
    np.testing.assert_allclose(gram(lower), lower.swapaxes(-1, -2) @ lower, atol=1e-12)
    matrices = np.eye(size) + left @ left.swapaxes(-1, -2)
    expected = np.linalg.cholesky(matrices)
    np.testing.assert_allclose(lower_roots(matrices), expected, rtol=1e-9, atol=1e-12)
    eye = np.broadcast_to(np.eye(size), matrices.shape)
    np.testing.assert_allclose(inverse_roots(matrices) @ expected, eye, atol=1e-12)


@pytest.mark.parametrize("size", [4, BLOCK + 4])
def test_rounding_does_not_break_a_factorisation(size: int) -> None:
    """A matrix I + (positive semidefinite) whose smallest eigenvalue rounding made negative."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    values = np.array([-0.5, 1.0, 3.0, 1e9])
    broken = np.eye(size)
    broken[-4:, -4:] = turn * values @ turn.T
    root = inverse_roots(np.array([broken, np.eye(size)]))
    np.testing.assert_allclose(root[1], np.eye(size), atol=1e-12)
    found = np.linalg.eigvalsh(root[0].T @ root[0])
    np.testing.assert_allclose(found, [1e-9, 1 / 3, *[1.0] * (size - 2)], rtol=1e-6)
