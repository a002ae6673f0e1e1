"""Run a model and record the values at named sites, under interventions and weight edits."""

from collections.abc import Iterator, Mapping, Sequence

from anchorlab.errors import SpecError
from anchorlab.lens.look.access import OUTPUT
from anchorlab.lens.look.first_sequence import check_read, sequences_at_a_time
from anchorlab.lens.look.inputs import AnyInputs, AnyModel, AnyPositions, Subject, as_list
from anchorlab.lens.look.interventions import Intervention
from anchorlab.lens.look.named_sites import with_sites
from anchorlab.lens.look.passes import Passes, branches_of
from anchorlab.lens.look.record import Record
from anchorlab.models.edits import AnyEdit, Quantise, Remove, Truncate

Change = Intervention | AnyEdit
"""A change that a candidate may hold: of a value at a site, or of a weight."""

_EDITS = (Truncate, Remove, Quantise)


def look(
    model: AnyModel,
    inputs: AnyInputs,
    record: str | Sequence[str] = (),
    interventions: Intervention | Sequence[Intervention] = (),
    *,
    edits: AnyEdit | Sequence[AnyEdit] = (),
    candidates: Mapping[str, Change | Sequence[Change]] | None = None,
    patch_inputs: AnyInputs | None = None,
    positions: AnyPositions | None = None,
    output: bool = True,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    sites: Mapping[str, str] | None = None,
    batch_size: int | None = None,
) -> Record:
    """Run every member on `inputs` and return the values at the named sites.

        record = look(ensemble, inputs, ["blocks.*.attn.hook_pattern"])
        record["blocks.0.attn.hook_pattern"]  # [member batch head query key]

    A site is recorded after its interventions, so the record holds the value that the model continued with. `"output"`
    is recorded too: `[member batch position output]`, or `[member batch scored output]` with `positions`. If candidates
    are given, the axis `candidate` follows `member`.

    Members run one by one, in evaluation mode and without gradients. Memory holds the whole record and the values of
    `batch_size` sequences at a time. If the record is too large, use `look_by_parts`. The model is left unchanged.

    Args:
        model: an ensemble; a run counts as its members at the end of training, a single module as one member.
        inputs: tokens or vectors, `[batch position *feature]`: a tensor, a batch of a task, an array or lists.
            Texts from `LanguageModel.tokenise` have lengths, and so has the record; see `Intervention` on padding.
        record: names of sites, or patterns such as `blocks.*.attn.hook_pattern`; one or a list. `*` stays
            within one part between dots, and `**` crosses them: `blocks.**` is every site of every block.
        interventions: changes of values, one or a list, applied in the given order, before the candidate's
            interventions.
        edits: changes of weights, one or a list, applied before the candidate's edits.
        candidates: named lists of further interventions and edits; each candidate runs separately. An empty list is the
            model with only `interventions` and `edits`.
        patch_inputs: the sequences that the rule `patch` takes values from, in the shape of `inputs`.
        positions: the positions at which the output is recorded, `[scored]` or `[batch scored]`; None: all. The model
            computes its output only there if it takes `positions` and if this removes no position from a recorded or
            changed site.
        output: whether to record the output. If not, a model that can restrict its logits to some positions computes
            only the last.
        axes: axis names by site pattern, for a module without `sites` of its own. Its sites are its submodules:
            `"encoder.0"` is the output of that submodule, `"attention[1]"` the second element of a tuple.
        sites: new names for sites of the module, by their own names: `{"my.pattern": "blocks.0.attn.hook_pattern"}`.
            All other sites are then left out. `with_sites` gives the names to every function of the lens.
        batch_size: the number of sequences that run at a time; None: at most 512, limited to about 512 MiB of memory as
            estimated from one pass over the first sequence.

    Errors: `SiteError` also for a site that is visited twice, and for an intervention that changed nothing in any
    member.
    """
    model = model if sites is None else with_sites(model, sites, axes)
    subject = Subject.of(model, inputs, positions, axes, patch_inputs)
    return look_at(subject, record, interventions, edits, candidates, output, batch_size)


def look_by_parts(
    model: AnyModel,
    inputs: AnyInputs,
    record: str | Sequence[str] = (),
    interventions: Intervention | Sequence[Intervention] = (),
    *,
    edits: AnyEdit | Sequence[AnyEdit] = (),
    candidates: Mapping[str, Change | Sequence[Change]] | None = None,
    patch_inputs: AnyInputs | None = None,
    positions: AnyPositions | None = None,
    output: bool = True,
    axes: Mapping[str, tuple[str, ...]] | None = None,
    batch_size: int | None = None,
) -> Iterator[Record]:
    """Yield the record of `look` in parts: one record for every `batch_size` sequences, in order.

        detect(look_by_parts(model, inputs, ["blocks.*.attn.hook_pattern"], output=False))

    Only one part at a time needs to be in memory. Interventions work as in `look`: means, places and operands refer to
    the whole batch. The check that every intervention changed something follows after the last part, so it runs only if
    all parts are consumed.

    Args: as in `look`; with `batch_size` None, the recorded values of a part count towards the 512 MiB.
    """
    subject = Subject.of(model, inputs, positions, axes, patch_inputs)
    yield from _passes(subject, record, interventions, edits, candidates, output, batch_size, True).records(whole=False)


def look_at(
    subject: Subject,
    record: str | Sequence[str] = (),
    interventions: Intervention | Sequence[Intervention] = (),
    edits: AnyEdit | Sequence[AnyEdit] = (),
    candidates: Mapping[str, Change | Sequence[Change]] | None = None,
    output: bool = True,
    batch_size: int | None = None,
) -> Record:
    """Return the result of `look` for a model and sequences that are already checked."""
    passes = _passes(subject, record, interventions, edits, candidates, output, batch_size)
    (found,) = passes.records(whole=True)
    return found


def _passes(
    subject: Subject,
    record: str | Sequence[str],
    interventions: Intervention | Sequence[Intervention],
    edits: AnyEdit | Sequence[AnyEdit],
    candidates: Mapping[str, Change | Sequence[Change]] | None,
    output: bool,
    batch_size: int | None,
    by_parts: bool = False,
) -> Passes:
    """Check the other arguments of a look, and choose how many sequences run at a time."""
    record = as_list(record, str, "record", "give names of sites")
    if not output and (subject.positions is not None or not record):
        field = "record" if subject.positions is None else "positions"
        raise SpecError(field, "leaves nothing to record without the output", "name a site, or set output to True")
    interventions = as_list(interventions, Intervention, "interventions", "write al.Intervention(site=..., rule=...)")
    edits = as_list(edits, _EDITS, "edits", "write Truncate(...), Remove(...) or Quantise(...)")
    access = subject.access
    recorded = {site for at, name in enumerate(record) for site in access.resolve(name, f"record.{at}")} - {OUTPUT}
    branches = branches_of(subject, interventions, edits, _by_name(candidates))
    named = {name: each for branch in branches for name, each in branch.interventions.items()}
    check_read(subject, {name: each.site for name, each in named.items() if not each.may_do_nothing})
    targets = recorded | {each.site for each in named.values()}
    if output:
        asked = subject.positions if access.hands_on_positions(targets) else None
        recorded.add(OUTPUT)
    else:
        asked = access.least_positions(targets, subject.inputs)
    kept, copies = (recorded, subject.ensemble.size * len(branches)) if by_parts else ((), 1)
    size = sequences_at_a_time(subject, asked, given=batch_size, kept=kept, copies=copies)
    names = None if candidates is None else tuple(candidates)
    return Passes(subject, branches, names, recorded, asked, size)


def _by_name(candidates: Mapping[str, Change | Sequence[Change]] | None) -> Mapping[str, list[Change]] | None:
    if candidates is None:
        return None
    if not isinstance(candidates, Mapping):
        raise SpecError("candidates", "have no names", "give lists of interventions and edits by name")
    remedy, kinds = "give interventions or edits", (Intervention, *_EDITS)
    return {name: as_list(changes, kinds, f"candidates.{name}", remedy) for name, changes in candidates.items()}
