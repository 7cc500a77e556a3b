"""What is offered to a decision: contexts read, arms found or admitted, room made."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsucb.agent.arm_features import HybridReader, described
from tsucb.agent.contexts import Arm, Context, one_by_one
from tsucb.agent.core import Core
from tsucb.agent.roster import (
    Offer,
    Roster,
    record_of,
    records_of,
)
from tsucb.models.forgetting import without_forgetting
from tsucb.numeric.arrays import Floats


class Offering(Core):
    """Reads contexts and arms, and makes the roster as wide as they are."""

    def _read(self, context: Context, arms: Any, peek: bool = False) -> tuple[Any, Any]:
        """A context as numbers, and the names of the arms; learning columns as they come."""
        reader = self._reader
        if arms is None and not self._per_arm and not peek:  # the common case first
            return reader.packed(context), None
        if isinstance(reader, HybridReader):
            if arms is None and not self._coming:
                arms = self.arms
            names, features = described(arms)
            if not self._coming:
                records_of(names, self._records)
            return reader.read(context, features, peek), names
        if isinstance(arms, Mapping):
            if not self._per_arm or context is not None:
                raise TypeError(
                    f"{reader.model_name} takes arms as a list of names"
                    + (", or as a mapping to features and then no context" if self._per_arm else
                       "; features of arms are for HybridLinear and Linear")
                )  # fmt: skip
            context, arms = arms, list(arms)
        if self._coming:
            offered = tuple(described(arms)[0])
            return reader.rows(context, offered, offered).tobytes(), offered
        if self._free and arms is not None:
            records_of(arms, self._records)  # before the reader learns anything from the context
        if self._per_arm:
            if arms is not None:
                arms = [record.name for record in records_of(arms, self._records)]
            offered = self.arms if arms is None else tuple(arms)
            return reader.rows(context, offered, self._records).tobytes(), offered
        return (reader.peeked(context) if peek else reader.packed(context)), arms

    def _read_one(self, context: Context, arm: Arm, features: Any) -> Any:
        """The context of one arm as numbers."""
        if not self._coming:
            record_of(arm, self._records)  # before the reader learns anything from the context
        if isinstance(self._reader, HybridReader):
            return self._reader.read(context, [features])
        if features is not None:
            raise TypeError(f"{self._reader.model_name} knows no features of arms beside a context")
        return self._reader.vector(context).tobytes()

    def _read_many(self, contexts: Any, arms: Any) -> tuple[Any, Any]:
        """Several contexts as numbers, and the names of the arms."""
        reader = self._reader
        if self._per_arm:
            read = [self._read(context, arms) for context in one_by_one(contexts)]
            return [x for x, _ in read], read[0][1] if read else ()
        if self._free and arms is not None:
            records_of(arms, self._records)
        if reader.takes_context:
            return reader.matrix(contexts), arms
        for context in contexts:
            reader.packed(context)
        return np.zeros((len(contexts), 0)), arms

    def _offer(self, roster: Roster, arms: Sequence[Arm] | None) -> Offer:
        if arms is None:
            return roster.everyone
        return roster.offer(records_of(arms, self._records))

    def _offered(
        self, roster: Roster, x: Any, names: Any, peek: bool = False
    ) -> tuple[Roster, bytes, Offer]:
        """The roster as wide as the context, the context's bytes, and the arms that are offered."""
        reader = self._reader
        if isinstance(reader, HybridReader):
            roster, x = self._fitted_arms(roster, reader, x, peek)
        elif self._free:
            roster, x = self._fitted(roster, x, peek)
        if self._coming:
            roster, offer = self._with_strangers(roster, names)
            return roster, x, offer
        return roster, x, self._offer(roster, names)

    def _offered_many(self, roster: Roster, x: Any, names: Any) -> tuple[Roster, Floats, Offer]:
        """The roster as wide as the contexts, these one below the other, and the arms offered."""
        if not self._per_arm:
            if self._free and len(x):
                roster, x = self._fitted_rows(roster, x)
            return roster, x, self._offer(roster, names)
        rows: list[bytes] = []
        offer = roster.everyone
        for n in (-1, *range(len(x))) if x else ():  # the last is as wide as any
            roster, given, offer = self._offered(roster, x[n], names)
            rows.append(given)
        matrix = np.frombuffer(b"".join(rows[1:]))
        return roster, matrix.reshape(len(x), matrix.size // max(len(x), 1)), offer

    def _widened(self, roster: Roster, given: Any) -> tuple[Roster, bytes]:
        """A context that was read and a roster of the same width."""
        if isinstance(self._reader, HybridReader):
            return self._fitted_arms(roster, self._reader, given)
        return self._fitted(roster, given) if self._free else (roster, given)

    def _fitted(self, roster: Roster, x: bytes, peek: bool = False) -> tuple[Roster, bytes]:
        """A context and a roster of the same width: the narrower of the two is widened."""
        width = 8 * sum(roster.model.context_shape(1))
        if len(x) > width:
            if peek:
                return roster, x[:width]
            roster = self._roster = roster.widened(len(x) // 8)
        return roster, x + bytes(max(width - len(x), 0))

    def _fitted_rows(self, roster: Roster, matrix: Floats) -> tuple[Roster, Floats]:
        """The same for several contexts."""
        have, wanted = sum(roster.model.context_shape(1)), matrix.shape[1]
        if wanted > have:
            roster = self._roster = roster.widened(wanted)
        return roster, np.pad(matrix, ((0, 0), (0, max(have - wanted, 0))))

    def _fitted_arms(
        self, roster: Roster, reader: HybridReader, x: tuple[Floats, Floats], peek: bool = False
    ) -> tuple[Roster, bytes]:
        """The rows of arms and a roster of the same width: the narrower of the two is widened."""
        context, arms = x
        model = without_forgetting(roster.model)
        widths = max(context.shape[-1], model.context), max(arms.shape[1], model.features)
        if widths != (model.context, model.features):
            if peek:  # nothing is known of what came since
                context, arms = context[..., : model.context], arms[:, : model.features]
            else:
                crossed = model.crossed
                roster = self._roster = roster.widened(widths)
                model = without_forgetting(roster.model)
                if crossed and not model.crossed:
                    warnings.warn(
                        f"{widths[0]} columns of contexts and {widths[1]} of arms have too many "
                        "products, so their interaction is not learned any more; give fewer "
                        "features",
                        RuntimeWarning,
                        stacklevel=3,
                    )
        return roster, reader.laid_out(context, arms, model).tobytes()

    def _column_of(self, roster: Roster, arm: Arm) -> tuple[Roster, int]:
        """The column of an arm, which may have come with this call."""
        if not self._coming:
            return roster, roster.columns[record_of(arm, self._records)]
        roster, columns = self._all_remembered(roster, [arm])
        return roster, int(columns[0])
