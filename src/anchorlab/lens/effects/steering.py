"""Steering: add multiples of a direction at a site, and measure the effect on the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from anchorlab.drawable import plotted
from anchorlab.errors import SpecError
from anchorlab.lens.effects.effects import METRICS, Metric, check_targets, one_each
from anchorlab.lens.grids import Tabled, grid_table
from anchorlab.lens.look import AnyInputs, AnyModel, AnyPositions, Intervention, Operand, Subject, look_at
from anchorlab.rng import torch_generator
from anchorlab.spec import check_known

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Steering(Tabled):
    """The metrics under each multiple of a direction, averaged over all sequences and scored positions.

    Shapes
        multiples: the factors of the direction
        values: `[metric member site multiple]`
        random: `[direction metric member site multiple]`, under random directions of the same length
    """

    metrics: tuple[str, ...]
    sites: tuple[str, ...]
    multiples: tuple[float, ...]
    values: Float[Tensor, "metric member site multiple"]
    random: Float[Tensor, "direction metric member site multiple"]

    def curve(self, metric: str) -> Float[Tensor, "member site multiple"]:
        """Return one metric over the multiples."""
        check_known("metric", metric, self.metrics, "metric")
        return self.values[self.metrics.index(metric)]

    def plot(self, metric: str = "accuracy") -> "Figure":
        """Draw a metric over the multiples: for each site the mean over members, with a band from lowest to highest.

        If there are random directions, their mean and range over directions and members are drawn too, for each site.
        """
        return plotted(self, metric=metric)

    @property
    def table(self) -> "polars.DataFrame":
        """One row per metric, member, site and multiple, with the value and the mean under random directions.

        The columns are metric, member, site, layer, multiple, value, random; `random` is null without random
        directions.
        """
        import polars

        members = range(self.values.shape[1])
        axes = {"metric": self.metrics, "member": members, "site": self.sites, "multiple": self.multiples}
        table = grid_table(axes, {"value": self.values, "random": self.random.mean(dim=0)}, layers=True)
        return table if len(self.random) else table.with_columns(random=polars.lit(None, dtype=polars.Float64))


def steer(
    model: AnyModel,
    inputs: AnyInputs,
    targets: Shaped[Tensor, "batch scored ..."],
    direction: Float[Tensor, "*member width"],
    site: str = "blocks.*.hook_resid_post",
    multiples: Sequence[float] = (-2, -1, 0, 1, 2),
    *,
    where: Mapping[str, Any] | None = None,
    at: Mapping[str, Any] | None = None,
    positions: AnyPositions | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    random_directions: int = 3,
    seed: int = 0,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
) -> Steering:
    """Return the metrics of a model while multiples of a direction are added to the value at each matching site.

    The direction may be a difference of two means, the embedding of a token, or a singular vector; the multiple 1 adds
    it unchanged:

        difference = values[labels == 1].mean(dim=0) - values[labels == 0].mean(dim=0)
        steer(model, inputs, targets, difference, "blocks.1.hook_resid_post", range(-4, 5)).curve("logit")

    Any large added value changes answers. Random directions of the same length show how much of the effect is specific
    to the given direction.

    Args:
        targets: `[batch scored ...]`, the targets of the metrics: the tokens to steer towards.
        direction: `[width]`, or `[member width]` for one direction per member, along the last axis of the site.
        site: a name or a pattern; the direction is added at one matching site at a time.
        multiples: the factors of the direction; 0 is the model itself.
        where: as in `Intervention`: `{"position": -1}` steers only at the last position; None: everywhere.
        at: as in `Intervention`, places that differ between sequences.
        positions: the scored positions, `[scored]` or `[batch scored]`; None: the last of each sequence.
        metrics: functions of outputs and targets, by name, as in `effects`.
        random_directions: the number of random directions to compare with.
        seed: the seed of the random directions.

    Other arguments: as in `look`.
    Source: Turner et al., 2023; Rimsky et al., 2024 (differences of means).
    """
    subject = Subject.of(model, inputs, positions, axes)
    subject = replace(subject, positions=subject.scored)
    check_targets(targets, subject, metrics)
    factors = tuple(float(multiple) for multiple in multiples)
    if not factors:
        raise SpecError("multiples", "are none", "give at least one number")
    if random_directions < 0:
        raise SpecError("random_directions", f"{random_directions} is no number of directions", "give 0 or more")
    sites, members = subject.access.resolve(site, "site"), subject.ensemble.size
    sample = look_at(subject.first(), sites, output=False)
    steered = torch.as_tensor(direction).detach().double()
    for name in sites:
        width = sample[name].shape[-1]
        if tuple(steered.shape) not in ((width,), (members, width)):
            problem = f"has shape {tuple(steered.shape)}, and {name} a last axis of {width}"
            raise SpecError("direction", problem, f"give [{width}], or {[members, width]} for one of each member")
    length = steered.norm(dim=-1, keepdim=True)
    if bool((length == 0).any()):
        raise SpecError("direction", "has length 0", "give one of nonzero length")
    draw = torch_generator(seed, "steer")
    drawn = torch.randn(random_directions, *steered.shape, generator=draw, dtype=torch.float64)
    tried = torch.cat([steered.unsqueeze(0), drawn / drawn.norm(dim=-1, keepdim=True) * length])
    added = torch.stack([factor * one for one in tried for factor in factors])
    aims = targets.repeat(members * len(added), *(1,) * (targets.ndim - 1))
    values = []
    for name in sites:
        names = (*(("member",) if steered.ndim == 2 else ()), sample.axes(name)[-1])
        candidates = {
            str(number): Intervention(
                site=name,
                where=dict(where or {}),
                at=dict(at or {}),
                rule="add",
                operand=Operand(values=one, axes=names),
                may_do_nothing=not bool(one.any()),
            )
            for number, one in enumerate(added)
        }
        output = look_at(subject, candidates=candidates, batch_size=batch_size)["output"].flatten(0, 2)
        each = [one_each(f"metrics.{name}", metric(output, aims), aims).double() for name, metric in metrics.items()]
        values.append(torch.stack(each).reshape(len(metrics), members, len(tried), len(factors), -1).mean(dim=-1))
    found = torch.stack(values, dim=3).movedim(2, 0)  # direction metric member site multiple
    return Steering(tuple(metrics), tuple(sites), factors, found[0], found[1:])
