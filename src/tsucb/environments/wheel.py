"""The wheel: a non-linear problem in which exploration pays."""

import math

import numpy as np

from tsucb.checks import Availability, Share
from tsucb.compiler import implements
from tsucb.environments.environment import Environment, World, advance, begin, draw_available

# Rewards of the safe arm, the other arms, and the quadrant's arm beyond δ; the noise's deviation.
SAFE, INSIDE, PRIZE, NOISE = 1.2, 1.0, 50.0, 0.01


class WheelBandit(Environment):
    """Contexts uniform in the unit disk; beyond radius δ one arm of five, by quadrant, pays 50.

    Arm 0 pays 1.2 everywhere, arms 1 to 4 pay 1 inside the wheel; outside it the arm of the
    context's quadrant pays 50. The larger δ, the rarer the prize. Noise has deviation 0.01.

    Parameters
    ----------
    delta
        δ in (0, 1), the radius of the wheel.
    availability
        Probability with which an arm can be played at a step.

    >>> import numpy as np
    >>> wheel, rng = WheelBandit(delta=0.5), np.random.default_rng(0)
    >>> context, means, available = wheel.advance(wheel.begin(rng), 1, rng)
    >>> context.shape, means
    ((2,), array([ 1.2,  1. ,  1. , 50. ,  1. ]))

    Reference: Riquelme, Tucker and Snoek (2018), Section 5.4.
    """

    delta: Share = 0.5
    availability: Availability = 1.0
    arms = 5  # the safe one, and one for each quadrant
    context_shape = (2,)


@implements(begin, WheelBandit)
def begin_wheel(environment, rng):  # type: ignore[no-untyped-def]
    return World(np.zeros(0), np.empty(2), np.empty(5), np.arange(5), np.zeros(1))


@implements(advance, WheelBandit)
def advance_wheel(environment, world, step, rng):  # type: ignore[no-untyped-def]
    radius, angle = math.sqrt(rng.random()), 2 * math.pi * rng.random()
    x, y = radius * math.cos(angle), radius * math.sin(angle)
    world.context[0], world.context[1] = x, y
    world.means[:] = INSIDE
    world.means[0] = SAFE
    if radius > environment.delta:
        world.means[1 + 2 * (x < 0) + (y < 0)] = PRIZE
    world.noise[0] = NOISE * rng.standard_normal()
    return world.context, world.means, draw_available(environment.availability, world, rng)
