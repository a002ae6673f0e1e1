import pytest

from anchorlab.errors import SpecError
from anchorlab.theory.geometric_sum import weighted_geometric_sum


@pytest.mark.parametrize(("base", "terms", "total"), [(2.0, 3, 2 + 8 + 24), (-1.0, 4, -1 + 2 - 3 + 4), (0.5, 2, 1.0)])
def test_sums_by_hand(base, terms, total):
    assert weighted_geometric_sum(base, terms) == pytest.approx(total)


def test_what_has_no_sum_is_refused():
    with pytest.raises(SpecError, match="base: 1 has no closed form"):
        weighted_geometric_sum(1, 3)
    with pytest.raises(SpecError, match="terms: 0 terms"):
        weighted_geometric_sum(2.0, 0)
