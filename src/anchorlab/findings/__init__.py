"""The results of a study as plain values: claims with verdicts, figures, tables, attention views."""

from anchorlab.findings.claims import (
    MARKS,
    OTHER_TASK,
    SYMBOLS,
    UNTRAINED,
    VERDICTS,
    Claim,
    ClaimResult,
    Control,
    Scope,
    Verdict,
    at_least,
    at_most,
    band_text,
    check_band,
    within,
)
from anchorlab.findings.figures import (
    BarFigure,
    Bars,
    CircuitArrow,
    CircuitFigure,
    CircuitPanel,
    DotFigure,
    Dots,
    Event,
    Figure,
    Line,
    LineFigure,
    Map,
    MapFigure,
    Reference,
    Scatter,
    ScatterFigure,
    Table,
    TimelineFigure,
    event,
    grid,
    line,
    numbers,
)
from anchorlab.findings.findings import Findings
from anchorlab.findings.interval import Band
from anchorlab.findings.ledger import SCOPES, Counts, Evidence, LedgerEntry, counts, counts_apart, ledger
from anchorlab.findings.provenance import Provenance, provenance
