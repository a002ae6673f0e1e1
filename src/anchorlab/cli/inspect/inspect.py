"""`anchorlab inspect`."""

from pathlib import Path

from anchorlab.cli.inspect.heads import print_heads
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, check_member, counted, print_json, print_text
from anchorlab.errors import SpecError

_MOST = 100_000


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
    if not 1 <= n <= _MOST:
        raise SpecError("n", f"cannot measure on {n} sequences", f"give 1 to {_MOST}")
    check_file(page, "page")

    from anchorlab.lens import detect, look
    from anchorlab.training import TrainedRun

    trained = TrainedRun(shared.found_run(run, store))
    task = trained.experiment.task
    count = len(trained.experiment.members)
    check_member(member, count)
    if not any("hook_pattern" in site for site in getattr(trained.experiment.template, "sites", ())):
        kind = trained.experiment.model.kind
        raise SpecError("run", f"its model, {kind!r}, has no attention to measure", "give a run of a transformer")
    batch = task.sample(task.splits[-1], n, seed=0)
    record = look(trained.ensemble(step), batch.inputs, record=["blocks.*.attn.hook_pattern"])
    found = detect(record, batch)
    shown = trained.best_member if member is None else member
    if member is not None or not json:
        found = found.filter(found["member"] == shown)
    if page is not None:
        from anchorlab.report import show  # imports matplotlib

        show(trained).save(page)
    if json:
        print_json(found.to_dicts())
        return
    seed = trained.experiment.members.seeds[shown]
    print_heads(found, f"{trained.run.label}: what each head of member {shown} does, seed {seed}")
    if count > 1:
        which = "the one of lowest loss among" if member is None else "one of"
        print_text(f"{which} {counted(count, 'member')}; --member shows another")
    print_text(f"over {n} sequences of {task.splits[-1]!r}; 1: the head does this and nothing else; @: the offset")
    if page is not None:
        print_text(f"attention viewer: {page}", wrapped=False)
