"""Exceptions from signal handlers at random moments, over all methods of an agent.

    python tests/interrupts.py 100000

Beside the agent lives a twin that is never interrupted. After every interrupt the agent must know
exactly what the twin knows, or what the twin knows once it has been asked the same. A decision that
was interrupted may be counted without being open: then the twin drops it, too.
"""

import itertools
import math
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import tsucb
from tsucb.agent.machine import CLOSED, DECISIONS, OBSERVATIONS
from tsucb.contexts.readers import NOTHING_READ
from tsucb.models.structure import leaves


class Interrupted(Exception):
    """Raised by the signal handler, as by a task queue's time limit."""


class Alarm:
    """Raises `Interrupted` in the main thread after a while, until it is switched off."""

    def __init__(self):
        self.armed = False
        signal.signal(signal.SIGALRM, self.ring)

    def ring(self, number, frame):
        if self.armed:
            self.armed = False
            raise Interrupted

    def call(self, function, seconds):
        """Return what the function returns, and whether it was interrupted."""
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            result = function()
            self.armed = False
        except Interrupted:
            return None, True
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return result, False


def asked(call, read):
    """Return what is asked of an agent, and how an encoder reads the contexts in it."""
    call.read = read
    return call


def word(rng):
    return str(rng.choice(["Rome", "Oslo", "Bonn", "Lyon", "Cork"]))


def free_context(rng, step):
    context = {"age": float(rng.normal(40, 9)), "city": word(rng)}
    if rng.random() < 0.2:
        context["age"] = None
    if rng.random() < 0.02:
        context[f"late {step % 9}"] = 1.0
    return context


KINDS = {
    "NIGLinear": (
        lambda: {"model": tsucb.NIGLinear(2), "policy": tsucb.TSUCB(3)},
        lambda rng, step: rng.normal(size=2),
        lambda rng: float(rng.normal()),
    ),
    "BernoulliArms": (
        lambda: {"model": tsucb.BernoulliArms(), "policy": tsucb.Thompson()},
        lambda rng, step: None,
        lambda rng: float(rng.integers(2)),
    ),
    "keep_beliefs": (
        lambda: {"model": tsucb.NIGLinear(2), "policy": tsucb.TSUCB(1), "keep_beliefs": True},
        lambda rng, step: rng.normal(size=2),
        lambda rng: float(rng.normal()),
    ),
    "AdaptiveLinear": (
        lambda: {"policy": tsucb.TSUCB(3)},
        free_context,
        lambda rng: float(rng.normal()),
    ),
}


class Trial:
    """An agent that is interrupted, and its twin."""

    def __init__(self, kind, seed, folder, max_open=12):
        self.make, self.context, self.earn = KINDS[kind]
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.now = 0.0
        self.numbers = itertools.count()
        self.step = 0
        self.path = Path(folder) / f"{kind}.tsucb"
        self.agent, self.twin = (
            tsucb.Agent(["a", "b", "c"], seed=seed, clock=lambda: self.now, max_open=max_open,
                        **self.make())
            for _ in range(2)
        )  # fmt: skip
        self.took = {}
        self.happened = {"done": 0, "undone": 0, "finished": 0, "dropped": 0}
        for name in METHODS:  # compile everything before the first interrupt
            for _ in range(3):
                call = getattr(self, name)()
                begun = time.perf_counter()
                call(self.agent)
                self.took[name] = time.perf_counter() - begun
                call(self.twin)
        self.compare("after the first calls")

    # Each draws its arguments, and returns what is to be asked of the agent and of its twin.

    def choose(self):
        x = self.context(self.rng, self.step)
        some = list(self.agent.arms)[: 2 if self.rng.random() < 0.2 else None]
        return asked(
            lambda agent: agent.choose(x, some if len(some) == 2 else None),
            lambda encoder: encoder.encode(x),
        )

    def choose_many(self):
        xs = [self.context(self.rng, self.step) for _ in range(int(self.rng.integers(1, 6)))]
        return asked(lambda agent: agent.choose_many(xs), lambda encoder: encoder.encode_table(xs))

    def rank(self):
        x, length = self.context(self.rng, self.step), int(self.rng.integers(1, 3))
        return asked(lambda agent: agent.rank(x, length), lambda encoder: encoder.encode(x))

    def estimate(self):
        x = self.context(self.rng, self.step)
        return lambda agent: agent.estimate(x)

    def reward(self):
        open = self.twin._open.all()
        ids = list(open)
        if not ids:
            return self.choose()
        id = ids[self.rng.integers(len(ids))]
        arm = open[id][2]
        value = self.earn(self.rng)
        if isinstance(arm, tuple):
            value = [self.earn(self.rng) if self.rng.random() < 0.8 else None for _ in arm]
        return lambda agent: agent.reward(id, value)

    def reward_many(self):
        open = self.twin._open.all()
        ids = [id for id, each in open.items() if not isinstance(each[2], tuple)]
        ids = self.rng.permutation(ids)[:3].tolist()
        values = [self.earn(self.rng) for _ in ids]
        return lambda agent: agent.reward_many(ids, values)

    def reward_batch(self):
        xs = [self.context(self.rng, self.step) for _ in range(int(self.rng.integers(1, 6)))]
        made = {id(agent): agent.choose_many(xs) for agent in (self.agent, self.twin)}
        values = [self.earn(self.rng) for _ in xs]
        self.before = fingerprint(self.twin)
        return lambda agent: agent.reward_many(made[id(agent)], values)

    def record(self):
        x, id = self.context(self.rng, self.step), f"visit {next(self.numbers)}"
        arm = self.agent.arms[self.rng.integers(len(self.agent.arms))]
        return asked(lambda agent: agent.record(id, x, arm), lambda encoder: encoder.encode(x))

    def update(self):
        x, value = self.context(self.rng, self.step), self.earn(self.rng)
        arm = self.agent.arms[self.rng.integers(len(self.agent.arms))]
        return asked(lambda agent: agent.update(x, arm, value), lambda encoder: encoder.encode(x))

    def fit(self):
        arms = [self.agent.arms[i] for i in self.rng.integers(len(self.agent.arms), size=4)]
        xs = [self.context(self.rng, self.step) for _ in arms]
        history = (None if xs[0] is None else xs), arms, [self.earn(self.rng) for _ in arms]
        return asked(lambda agent: agent.fit(history), lambda encoder: encoder.encode_table(xs))

    def expire(self):
        value = None if self.rng.random() < 0.5 else self.earn(self.rng)
        return lambda agent: agent.expire(3.0, value)

    def add_arm(self):
        if len(self.agent.arms) > 5:
            return self.remove_arm()
        name = f"new {next(self.numbers)}"
        return lambda agent: agent.add_arm(name)

    def remove_arm(self):
        if len(self.agent.arms) < 3:
            return self.add_arm()
        name = self.agent.arms[self.rng.integers(len(self.agent.arms))]
        return lambda agent: agent.remove_arm(name)

    def save(self):
        return lambda agent: agent.save(self.path)

    def arms_summary(self):
        return lambda agent: agent.arms_summary()

    def coefficients(self):
        return lambda agent: agent.coefficients()

    def look(self):
        return lambda agent: (agent.open_decisions, agent.dropped)

    def interrupt(self, alarm):
        """Make one call, interrupted or not, and check the agent afterwards."""
        self.step += 1
        self.now += 0.5
        name = METHODS[self.rng.integers(len(METHODS))]
        call = getattr(self, name)()
        usual = self.took.get(name, 1e-4)
        begun = time.perf_counter()
        # Some calls have much to do first, such as to compile for arms that have come and gone.
        within = 1.2 * usual * self.rng.random()
        some = within if self.rng.random() < 0.5 else 10 ** self.rng.uniform(-5.5, -2.5)
        _, interrupted = alarm.call(lambda: call(self.agent), max(1e-6, some))
        if not interrupted:
            self.took[name] = 0.9 * usual + 0.1 * (time.perf_counter() - begun)
        self.check(name, call, interrupted)
        return interrupted

    def check(self, name, call, interrupted):
        agent, when = self.agent, f"{name}, interrupted: {interrupted}"
        assert not agent._guard.lock._is_owned(), f"{name} left the agent locked"
        assert not agent._guard._files._is_owned(), f"{name} left the agent saving"
        now = fingerprint(agent)
        if interrupted and now == self.before:
            self.happened["undone"] += 1
        else:
            self.happened["finished" if interrupted else "done"] += 1
            self.follow(call, now)
            self.compare(when, now)
        # An undone decision has still drawn random numbers and read the context.
        drawn = agent._learner.rng.bit_generator.state
        self.twin._learner.rng.bit_generator.state = drawn
        if self.step % 100 == 0:
            self.reload()

    def follow(self, call, now):
        """Ask the twin the same; or, where an undone call has only read contexts, read them."""
        twin, learner = self.twin, self.twin._learner
        read = now["encoder"] != self.before["encoder"]
        if now["counts"] != self.before["counts"] or not (
            read or now["width"] > self.before["width"]
        ):
            there = twin._open.all()
            call(twin)
            if now["counts"][DECISIONS] > self.before["counts"][DECISIONS]:
                twin._open.unfold()
                new = {id: each for id, each in twin._open.items() if id not in there}
                opened = {id: each for id, each in new.items() if id in now["open"]}
                if len(opened) < len(new):  # some were counted, but not opened
                    self.happened["dropped"] += len(new) - len(opened)
                    twin._open.clear()
                    twin._open.add(there | opened)
            return
        if read:
            call.read(learner.reader.encoders[0])
        if now["width"] > self.before["width"]:
            learner.adopt(NOTHING_READ, learner.prepared().widened(now["width"]))

    def reload(self):
        self.agent.save(self.path)
        loaded = tsucb.Agent.load(self.path, clock=lambda: self.now)
        assert fingerprint(loaded) == fingerprint(self.agent)
        x = self.context(self.rng, self.step)
        ids = [each.choose(x).id for each in (self.agent, loaded, self.twin)]
        assert ids[0] == ids[1] == ids[2], ids
        self.before = fingerprint(self.twin)
        left = [
            p.name for p in self.path.parent.iterdir() if p.name.startswith(f".{self.path.name}")
        ]
        assert not left, left

    def compare(self, when, now=None):
        agent = self.agent
        now, self.before = now or fingerprint(agent), fingerprint(self.twin)
        for key, value in self.before.items():
            assert now[key] == value, f"{when}: {key} is {now[key]}, not {value}"
        known = agent._learner.known
        counts, pulls = known.books.counts, known.books.pulls
        assert counts[DECISIONS] == agent._open.places() + counts[CLOSED] + agent.dropped, when
        assert agent._open.count() == agent.open_decisions <= agent.max_open, when
        assert known.state.pulls.tolist() == pulls.tolist(), when
        assert pulls.sum() <= counts[CLOSED] + counts[OBSERVATIONS], when


METHODS = [
    "choose", "choose", "choose_many", "rank", "estimate", "reward", "reward", "reward_many",
    "reward_batch",
    "record", "update", "fit", "expire", "add_arm", "remove_arm", "save", "arms_summary",
    "coefficients", "look",
]  # fmt: skip


def fingerprint(agent):
    """Return everything that an agent knows but the state of its random numbers."""
    with agent._guard.lock:
        known = agent._learner.prepared()  # as any call does
    return {
        "arms": agent.arms,
        "columns": list(known.arms.items()),
        "counts": known.books.counts[:3].tolist(),
        "born": known.born,
        "checksum": int(known.books.checksum[0]),
        "chosen": known.books.chosen.tolist(),
        "pulls": known.books.pulls.tolist(),
        "totals": known.books.totals.tolist(),
        "width": sum(known.model.context_shape(1)),
        "open": agent._open.all(),
        "state": [array.tobytes() for array in leaves(known.state)],
        "encoder": [encoder.state() for encoder in agent._learner.reader.encoders],
    }


def stress(interrupts, seed=0, kinds=tuple(KINDS), report=None):
    """Interrupt agents of all kinds this many times."""
    happened = {}
    alarm = Alarm()
    with tempfile.TemporaryDirectory() as folder:
        for number, kind in enumerate(kinds):
            trial = Trial(kind, seed + number, folder)
            wanted = math.ceil(interrupts / len(kinds))
            done = 0
            while done < wanted:
                done += trial.interrupt(alarm)
                if report and done % 1000 == 0:
                    report(kind, done, trial.happened)
            trial.reload()
            happened[kind] = trial.happened
    return happened


if __name__ == "__main__":
    begun = time.perf_counter()
    result = stress(
        int(sys.argv[1]) if len(sys.argv) > 1 else 100_000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 0,
        tuple(sys.argv[3].split(",")) if len(sys.argv) > 3 else tuple(KINDS),
    )
    for kind, counts in result.items():
        print(kind, counts)
    print(f"{time.perf_counter() - begun:.0f} s; {threading.active_count()} thread; all held")
