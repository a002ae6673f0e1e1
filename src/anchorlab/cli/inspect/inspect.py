"""`anchorlab inspect`."""

from collections.abc import Iterator
from pathlib import Path

from anchorlab.cli.inspect.heads import heads_table
from anchorlab.cli.inspect.measured import Measured, check_sequences
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import Rows, check_file, counted, hand_out
from anchorlab.errors import SpecError


def inspect(
    run: shared.AnyRun,
    /,
    *,
    store: shared.ReadStore = None,
    n: shared.Count = 200,
    step: shared.Step = None,
    member: int | None = None,
    page: Path | None = None,
    json: shared.Json = False,
) -> None:
    """Score the attention heads of a finished run with detectors, from 0 to 1.

    Parameters
    ----------
    n
        Number of sequences of the task's last split.
    member
        Index of the member, from 0; by default the one with the lowest loss, and all of them in JSON.
    page
        Also write the attention viewer to this HTML file: every head along training. Small models run in the page.
    """
    check_sequences(n, "n", " sequences")
    check_file(page, "page")

    from anchorlab.lens import detect, look

    of = Measured(run, store, member)
    if not any("hook_pattern" in site for site in getattr(of.trained.experiment.template, "sites", ())):
        kind = of.trained.experiment.model.kind
        raise SpecError("run", f"its model, {kind!r}, has no attention to measure", "give a run of a transformer")
    batch = of.task.sample(of.task.splits[-1], n, seed=0)
    record = look(of.trained.ensemble(step), batch.inputs, record=["blocks.*.attn.hook_pattern"])
    found, count = detect(record, batch), len(of.members)
    chosen = of.trained.best_member if member is None else member
    if member is not None or not json:
        found = found.filter(found["member"] == chosen)
    if page is not None:
        from anchorlab.report import show  # imports matplotlib

        show(of.trained).save(page)

    def shown() -> Iterator[str | Rows]:
        yield heads_table(found, f"{of.label}: what each head of member {chosen} does, seed {of.members.seeds[chosen]}")
        if count > 1:
            which = "the one of lowest loss among" if member is None else "one of"
            yield f"{which} {counted(count, 'member')}; --member shows another"
        yield f"over {n} sequences of {batch.split!r}; 1: the head does this and nothing else; @: the offset"

    hand_out(json, found.to_dicts, shown(), attention_viewer=page)
