"""The arrays that everything is made of."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsucb.compiled import inlined

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


# For compiled code: an assignment of one array to a part of another takes two seconds to compile,
# for the sake of the text of an error.
@inlined
def copy_to(target, source):  # type: ignore[no-untyped-def]
    """target[:] = source, for vectors of the same length."""
    for i in range(target.size):
        target[i] = source[i]
