"""What is known of two models made by hand."""

from itertools import product

from anchorlab.truth import Known, Truth, Unit

UNITS = ("0.0", "0.1", "1.0", "1.1")


def known(*minimal: tuple[str, ...]) -> Known:
    """A model whose loss is 0 if one of some sets is kept, and otherwise 4."""
    units = tuple(Unit(name=name, role="any", job=None) for name in UNITS)
    loss = []
    for bits in product((False, True), repeat=4):  # the first unit is the last bit
        kept = {name for name, keep in zip(UNITS, reversed(bits), strict=True) if keep}
        loss.append(0.0 if any({*one} <= kept for one in minimal) else 4.0)
    truth = Truth(units=units, minimal=minimal)
    return Known(name="identity", variant="backup", rotated=True, seed=0, truth=truth, loss=tuple(loss))


SINGLE = known(("0.0", "1.0"))
BACKUP = known(("0.0", "1.0"), ("0.1", "1.0"))
