"""The study of information flow, whole, on short chains."""

from anchorlab.runs import Store
from anchorlab.studies import run_study, study


def test_a_short_study(tmp_path):
    """Up to D = 30: 4D + 1 passes 9 at D = 3 and 27 at D = 7, 81 at D = 21; 2D passes 3 at 2, 9 at 5, 27 at 14."""
    findings = run_study(study("retrieval/information-flow"), "smoke", Store(tmp_path))
    values = {one.claim.id.rpartition("/")[2]: one.value for one in findings.claims}
    least = [2] * 2 + [3] * 4 + [4] * 14 + [5] * 10
    bound = [1] * 1 + [2] * 3 + [3] * 9 + [4] * 17
    assert values["bound"] > 0
    assert values["factor-three"] == 1
    assert values["three-for-three"] == 3
    theorem, free, *_ = findings.tables[0].rows
    assert free[3] == sum(one == two for one, two in zip(least, bound, strict=True)) / 30
    assert theorem[4:] == tuple(bound[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert free[4:] == tuple(least[one - 1] for one in (1, 2, 3, 4, 5, 10))
    assert all(row[2] == 1 for row in findings.tables[0].rows)
    assert findings.figures[0].lines[0].label == "Theorem 1"
