"""Settings of the agents that a comparison takes: from a TOML file, or as arguments of `Agent`."""

import inspect
import os
from collections.abc import Mapping
from typing import Any

from tsucb import models
from tsucb.checks import shown
from tsucb.files import read_toml
from tsucb.models.adaptive_curves import AdaptiveCurves
from tsucb.models.model import Model
from tsucb.policies.names import named_policy, usual_ucb

MODELS = {
    name: cls
    for name, cls in vars(models).items()
    if isinstance(cls, type)
    and issubclass(cls, Model)
    and name not in ("Model", "Forgetting")
    and not hasattr(cls, "described")  # these are made with code, which a file cannot name
}
# The arguments of `Agent` that a comparison takes.
TAKEN = ("policy", "model", "features", "forgetting", "exploration", "categories", "transformer")

Settings = Mapping[str, Any]


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings in a TOML file: arguments of `Agent`, policies and models by name.

        policy = "TS-UCB(1)"
        exploration = 0.05
        forgetting = 0.999
        features = ["age", "mobile"]      # all that the log has by default
        categories = ["zip"]
        [model]                           # or model = "NIGLinear"
        name = "NIGLinear"
        shape = 6.0

    An empty file stands for the agent's defaults.
    """
    try:
        values = read_toml(path)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    try:
        return checked(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def checked(settings: Settings) -> dict[str, Any]:
    """Return the settings, with the policy by its name; raise an error that names a wrong one."""
    unknown = [name for name in settings if name not in TAKEN]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is no setting of an agent to compare; give some of {', '.join(TAKEN)}"
        )
    taken = dict(settings)
    if isinstance(taken.get("policy"), str) and taken["policy"] != "UCB":
        taken["policy"] = named_policy(taken["policy"])
    model = taken.get("model")
    if isinstance(model, Mapping):
        if not isinstance(model.get("name"), str):
            raise ValueError('a model needs its name, such as name = "NIGLinear"')
        model_class(model["name"])
    elif isinstance(model, str):
        model_class(model)
    elif model is not None and not isinstance(model, Model):
        raise TypeError(
            f"a model is a name, a table with a name, or a tsucb.Model, not {shown(model)}"
        )
    return taken


def model_class(name: str) -> type:
    """Return the class of a model by its name."""
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}; give one of {', '.join(MODELS)}")
    return MODELS[name]


def agent_arguments(settings: Settings, contexts: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return arguments for `Agent`, and the contexts reduced to the features that it reads."""
    taken = checked(settings)
    features, model = taken.pop("features", None), taken.pop("model", None)
    if features is not None:
        if isinstance(features, str) or not all(isinstance(name, str) for name in features):
            raise TypeError("features is a list of names")
        features = list(features)
        for number, context in enumerate(contexts, start=1):
            absent = [n for n in features if not isinstance(context, Mapping) or n not in context]
            if absent:
                raise ValueError(f"decision {number} of the log has no feature {absent[0]!r}")
        contexts = [{name: context[name] for name in features} for context in contexts]
    if model is not None:
        if isinstance(model, Mapping | str):
            values = dict(model) if isinstance(model, Mapping) else {"name": model}
            cls = model_class(values.pop("name"))
            if "features" in inspect.signature(cls).parameters:
                values["features"] = 0 if contexts[0] is None else len(contexts[0])
            try:
                model = cls(**values)
            except TypeError as error:
                raise ValueError(f"{cls.__name__}: {error}") from None
        if model.context_shape(1):
            first = contexts[0]
            if isinstance(first, Mapping) and "transformer" not in taken:
                taken["features"] = list(first)
        else:
            contexts = [None] * len(contexts)
        taken["model"] = model
    if taken.get("policy") == "UCB":
        taken["policy"] = usual_ucb(model or AdaptiveCurves(0), len(contexts))
    return taken, contexts
