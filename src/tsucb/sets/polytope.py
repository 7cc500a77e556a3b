"""Polytopes, given by their corners or by inequalities."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tsucb.checks import floats, within
from tsucb.compiler import implements
from tsucb.numeric.arrays import copy_to
from tsucb.sets.arm_set import bound_at, optimistic, support
from tsucb.sets.corners import Cornered

MOST_CORNERS = 1_000_000


class Polytope(Cornered):
    """The convex hull of finitely many points. All arms are found exactly, in any dimension.

    Parameters
    ----------
    vertices
        One point per row (n, d); points that are not corners do no harm.

    >>> import numpy as np
    >>> from tsucb.sets.arm_set import support
    >>> arm = np.empty(2)
    >>> triangle = Polytope([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> support(triangle, np.array([1.0, 1.0]), arm), arm
    (2.0, array([0., 2.]))
    """

    vertices: Any

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Turn the vertices into a matrix; raise ValueError unless they are a finite matrix."""
        points = floats("vertices", values["vertices"])
        if points.ndim != 2 or points.size == 0 or not within(points):
            raise ValueError(
                "vertices must be a finite matrix with one point a row, but its shape is "
                f"{points.shape}" + ("" if within(points) else " and not all of it is finite")
            )
        if len(points) > MOST_CORNERS:
            raise ValueError(f"there are {len(points):,} vertices; {MOST_CORNERS:,} are the most")
        values["vertices"] = points

    @classmethod
    def from_inequalities(cls, matrix: ArrayLike, bounds: ArrayLike) -> "Polytope":
        """Return the polytope of all a with matrix @ a ≤ bounds.

        This lists all corners, so it is for few features only: a cube has 2ᵈ corners.

        Parameters
        ----------
        matrix
            One inequality per row (n, d).
        bounds
            The right sides (n,).

        >>> corners = Polytope.from_inequalities([[1, 1], [-1, 0], [0, -1]], [1, 0, 0]).vertices
        >>> sorted((corners.round(9) + 0.0).tolist())
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
        """
        from scipy.optimize import linprog
        from scipy.spatial import HalfspaceIntersection

        A, b = floats("matrix", matrix), floats("bounds", bounds)
        if A.ndim != 2 or A.size == 0 or b.shape != (len(A),) or not within(A) or not within(b):
            raise ValueError(
                "give a finite matrix with one inequality a row, and one bound for each; their "
                f"shapes are {A.shape} and {b.shape}"
            )
        d = A.shape[1]
        lengths = np.linalg.norm(A, axis=1)
        if (lengths == 0).any():
            raise ValueError("an inequality has zeros only, and says nothing about an arm")
        for i in range(d):
            for sign in (1.0, -1.0):
                end = linprog(sign * np.eye(d)[i], A_ub=A, b_ub=b, bounds=(None, None))
                if end.status == 2:
                    raise ValueError("no arm satisfies all inequalities")
                if end.status == 3:
                    raise ValueError(f"the inequalities leave entry {i} of an arm unbounded")
        if d == 1:
            ends = b / A[:, 0]
            return cls([[ends[A[:, 0] < 0].max()], [ends[A[:, 0] > 0].min()]])
        # HalfspaceIntersection needs a point inside: the centre of the largest ball.
        ball = linprog(
            np.append(np.zeros(d), -1.0),
            A_ub=np.column_stack([A, lengths]),
            b_ub=b,
            bounds=[(None, None)] * d + [(0, None)],
        )
        scale = 1.0 + np.abs(b / lengths).max()
        if ball.status != 0 or ball.x[-1] <= 1e-10 * scale:
            raise ValueError("the inequalities leave a set without an inside; give its vertices")
        found = HalfspaceIntersection(np.column_stack([A, -b]), ball.x[:-1]).intersections
        # A corner where more than d inequalities meet is found several times.
        _, first = np.unique((found / scale).round(10), axis=0, return_index=True)
        return cls(found[np.sort(first)])

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.vertices.shape[1])


@implements(support, Polytope)
def support_polytope(arms, direction, point):  # type: ignore[no-untyped-def]
    return optimistic(arms, direction, arms.vertices, 0.0, point)


@implements(optimistic, Polytope)
def optimistic_polytope(arms, mean, root, alpha, point):  # type: ignore[no-untyped-def]
    best, chosen = -np.inf, 0
    for n in range(arms.vertices.shape[0]):
        value = bound_at(mean, root, alpha, arms.vertices[n])
        if value > best:
            best, chosen = value, n
    copy_to(point, arms.vertices[chosen])
    return best
