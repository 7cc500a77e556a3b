"""Reference computations that several tests share."""

from typing import Any

import numpy as np


def layers(model: Any, flat: Any, arms: int) -> list[Any]:
    """Return a flat vector of parameters as weights and biases in turn."""
    parts, start = [], 0
    for inputs, outputs in model.layer_shapes(arms):
        parts.append(flat[start : start + inputs * outputs].reshape(inputs, outputs))
        start += inputs * outputs
        parts.append(flat[start : start + outputs])
        start += outputs
    return parts


def click_rates(model: Any, day: Any) -> Any:
    """Return the click rate of every visit's user on every article (N, A)."""
    return 1 / (1 + np.exp(-(day.users() @ model.weights.T + model.intercept)))
