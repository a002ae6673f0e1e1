from anchorlab.studies.anchor.synonym import TWINS, UNSEEN
from anchorlab.tasks import task


def test_the_compared_pairs_are_groups_of_their_splits():
    with_synonyms = task("anchor/synonym", total=1000)
    for split, pairs in (("test on task", UNSEEN), ("test on data", TWINS)):
        batch = with_synonyms.sample(split, 500, seed=0)
        drawn = {batch.groups[int(group)] for group in batch.group.unique()}
        assert set(pairs) <= drawn
    plain = task("anchor/synonym", total=1000, synonyms=False)
    drawn = plain.sample("train", 500, seed=0)
    assert not {drawn.groups[int(group)] for group in drawn.group.unique()} & {*UNSEEN, *TWINS}
