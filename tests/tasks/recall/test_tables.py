"""Alias tables by enumeration, chains by counting, and bigram tables of any text."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import anchorlab.tasks.recall.tables
from anchorlab.errors import SpecError
from anchorlab.rng import generator
from anchorlab.tasks import parse_task, task
from anchorlab.tasks.alias import AliasTable
from anchorlab.tasks.recall.markov import MarkovChain, table_chain, table_characters, table_counts
from anchorlab.tasks.recall.tables.rebuild import count_bigrams, rebuild

FOLDER = Path(anchorlab.tasks.recall.tables.__file__).parent


@given(
    st.integers(1, 4).flatmap(
        lambda rows: st.integers(1, 70).flatmap(
            lambda columns: st.lists(
                st.lists(st.sampled_from([0.0, 1e-12, 0.1, 1.0, 3.7, 1e6]), min_size=columns, max_size=columns),
                min_size=rows,
                max_size=rows,
            )
        )
    )
)
@settings(max_examples=150, deadline=None)
def test_alias_tables_hold_the_distribution_exactly(rows: list[list[float]]) -> None:
    weights = np.array(rows)
    weights[weights.sum(axis=1) == 0, 0] = 1.0
    expected = weights / weights.sum(axis=1, keepdims=True)
    table = AliasTable.build(weights)
    # By hand, cell by cell: the share of a column's words below its threshold, and the rest to its alias.
    columns = 2**table.column_bits
    found = np.zeros((len(weights), columns))
    for cell, (threshold, alias) in enumerate(zip(table.threshold.tolist(), table.alias.tolist(), strict=True)):
        row, column = divmod(cell, columns)
        kept = threshold / 2**64
        assert 0 <= kept <= 1 / columns
        found[row, column] += kept
        found[row, alias] += 1 / columns - kept
    assert np.abs(found[:, : weights.shape[1]] - expected).max() < 1e-14
    assert (found[:, : weights.shape[1]][expected == 0] == 0).all() and (found[:, weights.shape[1] :] == 0).all()


def test_draws_follow_the_table() -> None:
    weights = np.array([[1.0, 2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 5.0]])
    table = AliasTable.build(weights)
    drawn = table.draw(generator(0, "test"), np.zeros(60_000, dtype=np.int64))
    assert stats.chisquare(np.bincount(drawn), [10_000, 20_000, 30_000]).pvalue > 1e-3
    assert (table.draw(generator(0, "test"), np.ones(1000, dtype=np.int64)) == 3).all()


def test_the_shipped_table_is_the_text_and_its_chain_has_its_frequencies() -> None:
    """1 115 394 characters, 65 distinct; the space is the most frequent and '!' has id 2."""
    counts, characters = table_counts("shakespeare"), table_characters("shakespeare")
    assert counts.sum() == 1_115_394 - 1 and len(characters) == 65
    assert characters[1] == " " and counts.sum(axis=1).argmax() == 1 and characters[2] == "!"
    assert counts[characters.index("t"), characters.index("h")] > counts[characters.index("h"), characters.index("t")]
    with (FOLDER / "shakespeare_bigrams.csv").open() as file:
        assert np.array_equal(counts, np.array(list(csv.reader(file)), dtype=np.int64))
    counts, chain = table_counts("shakespeare"), table_chain("shakespeare")
    assert np.allclose(chain.initial, counts.sum(axis=1) / counts.sum(), rtol=1e-12, atol=0)
    assert np.allclose(chain.transition, counts / counts.sum(axis=1, keepdims=True), rtol=1e-12, atol=0)
    tables = (chain.initial_table, chain.transition_table)
    assert [len(table.threshold) >> table.column_bits for table in tables] == [1, 65]
    chain = MarkovChain.from_counts(np.array([[3, 1], [0, 0]]))
    assert chain.initial.tolist() == [1, 0] and chain.transition.tolist() == [[0.75, 0.25], [1, 0]]
    wider = chain.with_state()
    assert wider.transition.tolist() == [[0.75, 0.25, 0], [1, 0, 0], [1, 0, 0]] and wider.states == 3


# Bigram tables of any text.
def test_counts_and_files_of_a_small_text(tmp_path: Path) -> None:
    characters, counts = count_bigrams("abba!\U0001f642")
    assert characters == ("!", "a", "b", "\U0001f642")
    expected = np.zeros((4, 4), dtype=int)
    for first, second in ((1, 2), (2, 2), (2, 1), (1, 0), (0, 3)):
        expected[first, second] += 1
    assert np.array_equal(counts, expected)
    text = tmp_path / "text.txt"
    text.write_text("aab\r\n", newline="")
    table, index = rebuild(text, "small", tmp_path)
    assert json.loads(index.read_text()) == ["\n", "\r", "a", "b"]
    assert table.read_text() == "0,0,0,0\n1,0,0,0\n0,0,1,1\n0,1,0,0\n"


def test_a_task_of_a_file_is_built_anew_from_the_file_as_it_is_now(tmp_path: Path) -> None:
    table = tmp_path / "own_bigrams.csv"
    (tmp_path / "own_characters.json").write_text('["a", "b"]')
    table.write_text("1,1\n1,1\n")
    before = task("recall/noisy", source=str(table))
    table.write_text("0,1\n1,0\n")
    now = task("recall/noisy", source=str(table))
    assert now.chain.transition[:2, :2].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(SpecError, match=r"digest: the table .* has changed since"):
        parse_task(before.model_dump(mode="json"))


def test_texts_and_names_without_a_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="text: has fewer than two characters"):
        count_bigrams("a")
    for ask in (table_counts, table_characters):
        with pytest.raises(SpecError, match="did you mean 'shakespeare'"):
            ask("shakespear")
    for name in ("../up", "uniform"):
        with pytest.raises(SpecError, match="cannot name a table"):
            rebuild(tmp_path / "text.txt", name, tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff")
    for name in ("none", "bad"):
        with pytest.raises(SpecError, match=f"{name}.txt cannot be read"):
            rebuild(tmp_path / f"{name}.txt", "x", tmp_path)
    assert not list(tmp_path.glob("x_*"))
