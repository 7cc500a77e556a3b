"""Record the arms of every model with every policy, and compare them after a change.

    python tests/arms.py save before.json
    python tests/arms.py compare before.json

Each pair plays a script of contexts and rewards with equal seeds; agents with nothing set decide on
rows with strings, gaps and described arms. The comparison prints every pair that differs, and the
step from which it does.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
from everything import MODELS, POLICIES, label

import tsucb
from tsucb.testing.loops import Interpreted, script_for, simulated

STEPS = 150
AGENT_STEPS = 600


def agent_arms(described: bool, context: bool, **settings: object) -> list[str]:
    """Return the arms of an agent on a fixed stream of contexts; every seventh reward is lost."""
    rng = np.random.default_rng(5)
    arms = {name: {"size": i, "kind": name[:1]} for i, name in enumerate(("tea", "milk", "toast"))}
    agent = tsucb.Agent(None if described else list(arms), seed=1, **settings)  # type: ignore[arg-type]
    chosen = []
    for t in range(AGENT_STEPS):
        row = {"age": float(rng.normal(40, 10)), "city": "Rome" if rng.random() < 0.3 else "Oslo"}
        if rng.random() < 0.1:
            del row["age"]
        decision = agent.choose(row if context else None, arms if described else None)
        chosen.append(str(decision.arm))
        worth = {"tea": 0.2, "milk": 0.02 * row.get("age", 40.0) - 0.5, "toast": 0.4}
        reward = worth[chosen[-1]] + (row["city"] == "Rome") * (chosen[-1] == "tea")
        noise = rng.normal()
        if t % 7:
            agent.reward(decision.id, reward + 0.3 * noise)
    return chosen


def record() -> dict[str, list[object]]:
    """Return the arms by the names of what chose them."""
    found: dict[str, list[object]] = {}
    for (i, model), (j, policy) in itertools.product(enumerate(MODELS), enumerate(POLICIES)):
        name = f"{i} {label(model)} × {j} {label(policy)}"  # labels alone are not unique
        try:
            script = script_for(model, 4, STEPS, (0.0, 1.0))
            found[name] = simulated(script, model, Interpreted(policy)).tolist()
        except (ValueError, TypeError) as error:  # a pair that is refused stays refused
            found[name] = [type(error).__name__]
    for described, context in itertools.product((False, True), repeat=2):
        for settings in ({}, {"policy": tsucb.Thompson()}, {"exploration": 0.1}):
            name = f"agent × {described=} × {context=} × {settings}"
            found[name] = list(agent_arms(described, context, **settings))
    return found


def main(act: str, path: str) -> int:
    """Save the arms, or compare them with those that were saved; 1 if any differ."""
    if act == "save":
        Path(path).write_text(json.dumps(record()))
        return 0
    before, after = json.loads(Path(path).read_text()), record()
    different = 0
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old != new:
            different += 1
            pairs = enumerate(zip(old or (), new or (), strict=False))
            first = next((t for t, (a, b) in pairs if a != b), None)
            print(f"{name}: differs from step {first}" if old and new else f"{name}: only in one")
    print(f"{len(before)} recorded, {different} differ")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
