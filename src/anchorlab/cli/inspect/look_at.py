"""`anchorlab look-at`."""

from pathlib import Path

from anchorlab.cli.inspect.heads import heads_table
from anchorlab.cli.options import shared
from anchorlab.cli.terminal.output import check_file, counted, hand_out, waiting
from anchorlab.errors import SpecError
from anchorlab.spec import unknown_name


def look_at(
    model: str,
    text: str,
    /,
    *texts: str,
    revision: shared.Revision = None,
    download: shared.Download = False,
    by: str = "shift",
    n: shared.Count = 20,
    page: Path | None = None,
    json: shared.Json = False,
) -> None:
    """Score the attention heads of a pretrained language model on texts with detectors, from 0 to 1.

    Parameters
    ----------
    model
        Name on Hugging Face's hub, local folder, `.gguf` file, `smollm2` or `gemma3`.
    text
        Text to read.
    texts
        Further texts; scores are means over all.
    by
        Detector by whose scores heads are sorted, such as `first-token`, `broadcast` or `induction`.
    n
        Number of heads to print; the page and the JSON have all.
    page
        Also write the attention viewer to this HTML file: every head on every text.
    """
    if n < 1:
        raise SpecError("n", f"cannot print {n} heads", "give 1 or more")
    check_file(page, "page")
    with waiting("loading libraries", quiet=json):
        from anchorlab.language import pretrained
        from anchorlab.report.viewing import Viewer
        from anchorlab.viewer import read_texts

    with waiting(f"opening {model}", quiet=json):
        opened = pretrained(model, revision, download=download)
    with waiting("reading", quiet=json):
        read = read_texts(opened, (text, *texts))
    detectors, detector = read.found["detector"].unique(maintain_order=True).to_list(), by.replace("-", "_")
    if detector in ("induction", "matching") and detector not in detectors:
        raise SpecError("by", f"{by!r} needs a token that occurs twice", "give such a text, or another detector")
    if detector not in detectors:
        raise unknown_name("by", by, [name.replace("_", "-") for name in detectors], "detector")
    written = None if page is None else Viewer(read.view).save(page)
    of, texts_read = read.view.layers * read.view.heads, counted(len(read.view.examples), "text")
    shown = (
        heads_table(read.found, f"{model}: what heads do", detector, n, hidden=["fixed_position"]),
        f"{min(n, of)} of {of} heads by {by}, over {texts_read}; 1: the head does this and nothing else; @: the offset",
    )
    hand_out(json, read.found.to_dicts, shown, attention_viewer=written)
