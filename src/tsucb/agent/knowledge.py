"""What an agent knows of its arms: columns of the model's state, and counts.

A decision or a reward changes the arrays in a `Knowledge`, in one call of compiled code. Anything
larger (arms that come and go, wider contexts, training, a history) makes another `Knowledge`, which
replaces this one in one assignment. So an exception from outside finds the old or the new one,
never a mixture.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tsucb.agent.machine import DECISIONS, DUE, Books
from tsucb.checks import MOST, shown
from tsucb.contexts.readers import Arm, widths_of
from tsucb.contexts.values import listed
from tsucb.models.change import NoticedChange
from tsucb.models.model import Model
from tsucb.models.state import State
from tsucb.models.structure import copied, leaves
from tsucb.numeric.arrays import Integers

MOST_NUMBERS = 2**30  # of a state that grows with contexts: 8 GB


class Offer(NamedTuple):
    """Arms to choose from, with their columns of the state."""

    names: tuple[Arm, ...]
    columns: Integers
    policy: Any  # chooses among them
    changes: tuple[NoticedChange, ...] = ()

    def checked(self) -> "Offer":
        """Return the offer; raise ValueError if it is empty."""
        if not self.names:
            raise ValueError("no arm is available; add one, or list at least one")
        return self


class Knowledge:
    """Everything an agent has learned; see the top of this module.

    Parameters
    ----------
    model, state
        The model, as wide as the contexts so far, and its state.
    arms
        The column of every arm, in the order in which the arms were added, or last used if they
        come with the decisions.
    books
        The counts of every column.
    born
        The number of decisions made before an arm was added, if not 0. Earlier decisions are for
        another arm of the same name.
    policy
        Chooses among the arms, with its floor.
    free
        Columns without an arm, for arms that come with the decisions.
    wanted
        The arms from the next call on, if they change; the column of a new arm is -1.
    """

    # Slots are found faster.
    __slots__ = ("arms", "books", "born", "everyone", "free", "machine", "model", "noticed",
                 "policy", "ready", "state", "wanted", "width", "widths")  # fmt: skip

    # Many parameters, because a `Knowledge` is replaced as a whole.
    def __init__(
        self, model: Model, state: Any, arms: Mapping[Arm, int], books: Books, policy: Any,
        born: Mapping[Arm, int] | None = None, free: Iterable[int] = (),
        wanted: dict[Arm, int] | None = None,
    ) -> None:  # fmt: skip
        self.model, self.state, self.arms, self.policy = model, state, OrderedDict(arms), policy
        self.books, self.born, self.free = books, dict(born or {}), dict.fromkeys(free)
        self.everyone: Offer | None = None  # all arms, once `all_arms` was called
        self.widths = widths_of(model)  # of a context, and of an arm's features
        self.width = sum(self.widths)  # of a row
        # Changes of rewards that the model noticed, if it does, with the names of the arms.
        names: dict[int | None, Any] = {None: None} | {n: name for name, n in self.arms.items()}
        self.noticed = tuple(
            change._replace(arm=names[change.arm])
            for change in getattr(model, "changes", lambda _: [])(state)
            if change.arm in names
        )
        self.machine: Any = None  # decides and learns with all this, once it is made
        self.ready = False  # False if `Learner.prepared` has something to do before the next call
        self.wanted = wanted

    @classmethod
    def start(cls, model: Model, names: Iterable[Arm], state: Any, policy: Any) -> "Knowledge":
        """Return what is known of new arms; columns of the state beyond them are free."""
        arms = {name: i for i, name in enumerate(names)}
        count = model.arms(state)
        books = Books.blank({"arm": count})
        for name, column in arms.items():
            books.tokens[column] = token_of(name)
        return cls(model, state, arms, books, policy, free=range(len(arms), count))

    def all_arms(self) -> Offer:
        """Return all arms, and keep them in `everyone`; raise ValueError if there is none."""
        if self.everyone is None:
            self.everyone = self.offer(self.arms).checked()
        return self.everyone

    @property
    def selects(self) -> bool:
        """Whether arms can be selected from the state: not if it remembers their indices."""
        return isinstance(self.state, State) and not self.model.keeps_arms

    def offer(self, names: Iterable[Arm]) -> Offer:
        """Return some of the arms, in this order."""
        some = tuple(names)
        columns = np.array([self.arms[name] for name in some], dtype=np.int64)
        return Offer(some, columns, self.policy, self.noticed)

    def changed(self, **parts: Any) -> "Knowledge":
        """Return another `Knowledge` with some parts replaced."""
        names = ("model", "state", "arms", "books", "policy", "born", "free")
        return Knowledge(**{name: getattr(self, name) for name in names} | parts)

    def copied(self) -> "Knowledge":
        """Return another with arrays of its own."""
        return self.changed(state=copied(self.state), books=self.books.copy())

    def trained(self) -> "Knowledge":
        """Return another, whose model has been trained."""
        new = self.copied()
        self.model.trainer([new.state])()
        new.books.counts[DUE] = 0
        return new

    def is_current(self, name: Arm, number: int) -> bool:
        """Return whether decision `number` is for the arm that has this name now."""
        return name in self.arms and self.born.get(name, 0) < number

    # Columns

    def with_room(self, arms: int) -> "Knowledge":
        """Return another with at least this many free columns, and at least half as many again."""
        count = self.books.chosen.size
        more = max(arms - len(self.free), count // 2, 8)
        return self.changed(
            state=self.model.extend(self.state, more),
            books=self.books.joined(Books.blank({"arm": more})),
            free=[*self.free, *range(count, count + more)],
        )

    def with_arms(self, wanted: Mapping[Arm, int]) -> "Knowledge":
        """Return another with these arms only, in this order; column -1 stands for a new arm.

        It copies the state once, however many arms came and went: as much work as deciding among
        all arms. Where arms cannot be selected, the columns of those that leave stay.
        """
        old = {name: column for name, column in wanted.items() if column >= 0}
        new = [name for name, column in wanted.items() if column < 0]
        state, books, free = self.state, self.books, list(self.free)
        if self.selects and (len(old) < len(self.arms) or free):
            if type(self.model).release is not Model.release:
                state, here = copied(state), set(old.values())
                gone = [column for column in self.arms.values() if column not in here]
                self.model.release(state, np.array(gone, dtype=np.int64))
            staying = np.array(list(old.values()), dtype=np.int64)
            free, state, books = [], state.select(staying), books.select(staying)
            old = {name: i for i, name in enumerate(old)}
        count, made = books.chosen.size, int(books.counts[DECISIONS])
        if new:
            state = self.model.extend(state, len(new))
            books = books.joined(Books.blank({"arm": len(new)}))
        born = {name: before for name, before in self.born.items() if name in old}
        for i, name in enumerate(new):
            books.tokens[count + i] = token_of(name)
            if made:
                born[name] = made
        columns = old | {name: count + i for i, name in enumerate(new)}
        arms = {name: columns[name] for name in wanted}
        return self.changed(state=state, books=books, arms=arms, born=born, free=free)

    # Contexts

    def widened(self, features: Any, places: Any = None) -> "Knowledge":
        """Return another for contexts with more features, which were 0 in all contexts so far."""
        model = self.model.widened(features)
        one, two = (sum(a.size for a in leaves(model.start(n))) for n in (1, 2))
        if one + (two - one) * (self.books.chosen.size - 1) > MOST_NUMBERS:
            raise ValueError(
                f"with {shown(features)} columns, {len(self.arms):,} arms would need more than "
                f"{8 * MOST_NUMBERS / 1e9:.0f} GB; give fewer features, or model="
                "tsucb.HashedLinear()"
            )
        return self.changed(model=model, state=self.model.widen(self.state, features, places))


def token_of(name: Arm) -> int:
    """Return a hash of 64 bits of an arm's name."""
    return int.from_bytes(blake2b(repr(name).encode(), digest_size=8).digest(), "little")


def plain_name(name: Any) -> Arm:
    """Return an arm's name, perhaps an enumeration's member, as a plain string or integer."""
    plain = name.item() if isinstance(name, np.generic) else name
    if isinstance(plain, bool) or not isinstance(plain, str | int):
        raise TypeError(f"an arm is named by a string or an integer, not by {shown(name)}")
    if isinstance(plain, int) and abs(plain) > MOST:  # Python refuses to write it as text
        raise ValueError(f"an arm's number must be within ±{MOST:g}, but it is {shown(name)}")
    return str.__str__(plain) if isinstance(plain, str) else int(plain)


def known_name(name: Any, arms: Mapping[Arm, int]) -> Arm:
    """Return the plain name of a known arm; raise ValueError if it is unknown."""
    if not isinstance(name, str | int | np.generic) or name not in arms:
        known = listed(arms) or "none at all"
        raise ValueError(f"there is no arm {shown(name)}; the arms are {known}")
    return plain_name(name)
