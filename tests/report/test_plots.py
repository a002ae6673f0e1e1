"""`plot` of runs, records, effects, findings and circuits: what is drawn, by numbers known without it."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

import anchorlab as al
from anchorlab.engine import run
from anchorlab.errors import SiteError, SpecError
from anchorlab.lens import Effects, Patching, PathPatching, Record, Steering
from anchorlab.runs import Store
from anchorlab.training import Evaluation
from tests.lens.landscape.hand_made import UNITS, made, parallel, two_of_three
from tests.papers.hand_made_circuits import FIRST, JOIN, circuit, path
from tests.report.hand_made_findings import PROVENANCE
from tests.small_experiments import experiment

PATTERN = "blocks.0.attn.hook_pattern"
TOKENS = torch.tensor([[4, 5, 6], [7, 8, 9]])


def record(**sites):
    """A record whose value at each place is the number of the place."""
    arrays = {
        site.replace("__", "."): torch.arange(int(np.prod(sizes))).view(sizes).float()
        for site, (sizes, _) in sites.items()
    }
    names = {site.replace("__", "."): tuple(names.split()) for site, (_, names) in sites.items()}
    return Record(arrays, names, TOKENS)


def maps(drawing):
    """The maps of a drawing: title and values; the last axes are the colour bar."""
    return {
        unwrapped(axes.get_title(loc="left")): np.array(axes.images[0].get_array())
        for axes in drawing.axes
        if axes.images and axes.get_subplotspec() is not None and axes.get_label() != "<colorbar>"
    }


def unwrapped(text):
    return text.replace("\n", " ")


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


class TestRuns:
    @pytest.mark.parametrize("metric", ["accuracy", "loss"])
    def test_mean_and_range_over_members(self, trained, metric):
        axes = trained.plot(metric).axes[0]
        labels = [one for text in axes.texts for one in text.get_text().split("\n= ")]  # equal curves share a label
        assert sorted(labels) == ["test", "train"]
        assert len(axes.lines) == len(axes.texts)
        for place, split in enumerate(("train", "test")):
            curve = axes.lines[min(place, len(axes.lines) - 1)]
            rows = trained.metrics.filter(pl.col("metric") == metric, pl.col("split") == split)
            for step in (0, 2, 4):
                values = rows.filter(pl.col("step") == step)["value"]
                assert curve.get_ydata()[step // 2] == pytest.approx(values.mean())
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("steps", metric)

    def test_title_provenance_and_the_default(self, trained):
        drawing = trained.plot(split="test")
        assert drawing.get_suptitle() == "anchor/identity: accuracy"
        assert "seeds 0..2" in drawing.get_supxlabel()
        assert len(drawing.axes[0].lines) == 1

    def test_a_scale_that_is_set_afterwards_shows_powers(self, trained):
        """matplotlib writes them as formulas, which it must not show as text."""
        drawing = trained.plot()
        drawing.axes[0].set_xscale("log")
        drawing._repr_png_()
        shown = drawing.axes[0].xaxis.get_majorticklabels()
        assert any("mathdefault" in one.get_text() for one in shown)
        assert all(one.get_parse_math() for one in shown)

    def test_a_logarithmic_time(self, trained):
        axes = trained.plot("loss", log=True).axes[0]
        assert axes.get_xscale() == "log" and ticks(axes.xaxis) == ["2", "4"]
        for curve, whole in zip(axes.lines, trained.plot("loss").axes[0].lines, strict=True):
            assert whole.get_xdata().tolist() == [0, 2, 4] and curve.get_xdata().tolist() == [2, 4]
            assert curve.get_ydata().tolist() == whole.get_ydata().tolist()[1:]

    def test_several_runs_show_the_last_split_under_their_labels(self, trained, tmp_path):
        one = experiment(duration=6, evaluation=Evaluation(every=2, size=8))
        other = run([replace(one, label="other")], Store(tmp_path), workers=1)[0]
        drawing = al.plot([trained, other], "loss")
        axes = drawing.axes[0]
        assert sorted(text.get_text() for text in axes.texts) == ["anchor/identity", "other"]
        for curve, each in zip(axes.lines, (trained, other), strict=True):
            assert curve.get_ydata()[-1] == pytest.approx(al.at_end(each, "test", "loss").mean())
        assert drawing.get_suptitle() == "loss, test"

    def test_runs_of_one_label_show_what_tells_them_apart(self, trained, tmp_path):
        (shorter,) = run([experiment(duration=2, evaluation=Evaluation(size=8))], Store(tmp_path), workers=1)
        shown = {text.get_text().replace("\n", " ") for text in al.plot([trained, shorter], "loss").axes[0].texts}
        assert shown == {"anchor/identity, duration 4", "anchor/identity, duration 2"}

    def test_runs_that_differ_in_split_label_unit_or_metric(self, trained, tmp_path):
        other = run([experiment("recall", duration=2, evaluation=Evaluation(size=8))], Store(tmp_path), workers=1)[0]
        last = other.experiment.task.splits[-1]
        assert last != "test"
        drawing = al.plot([trained, other], "loss")
        names = {text.get_text().replace("\n", " ") for text in drawing.axes[0].texts}
        assert names == {"anchor/identity, test", f"{other.run.label}, {last}"} and drawing.get_suptitle() == "loss"
        (text,) = al.plot([trained, trained]).axes[0].texts
        assert text.get_text().split("\n= ") == [f"anchor/identity {trained.run.address[:5]}"] * 2
        one = experiment(unit="epochs", duration=1, evaluation=Evaluation(size=8))
        with pytest.raises(SpecError, match=r"^runs: count their time in epochs and in steps"):
            al.plot([trained, *run([one], Store(tmp_path), workers=1)])
        one = experiment("vectors", duration=1, evaluation=Evaluation(size=4))
        drawing = run([one], Store(tmp_path), workers=1)[0].plot()
        assert drawing.axes[0].get_ylabel() == "loss"


class TestRecords:
    def test_a_pattern_is_a_map_for_each_head(self):
        found = record(blocks__0__attn__hook_pattern=((2, 2, 2, 3, 3), "member batch head query key"))
        drawing = found.plot(PATTERN, member=1, batch=1)
        values = found[PATTERN].numpy()
        shown = maps(drawing)
        assert list(shown) == ["head 0", "head 1"]
        assert all((shown[f"head {head}"] == values[1, 1, head]).all() for head in range(2))
        axes = drawing.axes[0]
        assert ticks(axes.xaxis) == ticks(axes.yaxis) == ["7", "8", "9"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
        assert unwrapped(drawing.get_suptitle()) == f"{PATTERN}, member 1, sequence 1"
        assert drawing.get_supxlabel() == ""

    def test_texts_of_tokens(self):
        found = record(blocks__0__attn__hook_pattern=((1, 2, 2, 3, 3), "member batch head query key"))
        axes = found.plot(PATTERN, tokens=["The", " cat", " sat"]).axes[0]
        assert ticks(axes.xaxis) == ticks(axes.yaxis) == ["The", " cat", " sat"]
        with pytest.raises(SpecError, match=r"^tokens: are 2 for 3 positions; give the text of each position"):
            found.plot(PATTERN, tokens=["The", " cat"])

    @pytest.mark.parametrize(
        ("sizes", "axes", "given", "shown"),
        [
            ((1, 2, 2, 3, 3), "member batch head query key", {"head": 1}, {"": (0, 0, 1)}),
            ((1, 2, 5), "member batch width", {"batch": 1}, {"": (0, [1])}),  # a vector is one row
            # heads stand between rows and columns
            ((1, 1, 3, 2, 5), "member batch position head head_width", {},
             {f"head {head}": (0, 0, slice(None), head) for head in range(2)}),
        ],
    )  # fmt: skip
    def test_what_is_chosen_is_shown(self, sizes, axes, given, shown):
        found = record(x=(sizes, axes))
        drawing = found.plot("x", **given)
        assert {name.partition(",")[0] if len(shown) > 1 else "" for name in maps(drawing)} == set(shown)
        for values, at in zip(maps(drawing).values(), shown.values(), strict=True):
            assert (values == found["x"][at].numpy()).all()
        *_, row, column = [axis for axis in axes.split() if axis != "head"]
        if len(shown) > 1:
            assert (drawing.axes[0].get_ylabel(), drawing.axes[0].get_xlabel()) == (row, column)

    def test_candidates_are_rows_of_maps(self):
        found = record(blocks__0__attn__hook_pattern=((1, 2, 1, 2, 3, 3), "member candidate batch head query key"))
        found = Record(found.arrays, found.axis_names, TOKENS, ("as it is", "cut"))
        shown = maps(found.plot(PATTERN))
        assert list(shown) == ["as it is, head 0", "as it is, head 1", "cut, head 0", "cut, head 1"]
        assert (shown["cut, head 0"] == found[PATTERN][0, 1, 0, 0].numpy()).all()
        alone = found.plot(PATTERN, candidate=1)
        assert list(maps(alone)) == ["head 0", "head 1"]
        assert unwrapped(alone.get_suptitle()) == f"{PATTERN}, member 0, sequence 0, cut"

    def test_a_text_too_long_for_ticks_has_none(self):
        tokens = torch.zeros(1, 1100, dtype=torch.int64)
        long = Record({PATTERN: torch.zeros(1, 1, 1, 1100)}, {PATTERN: ("member", "batch", "query", "key")}, tokens)
        assert len(long.plot(PATTERN).axes[0].images) == 1

    def test_many_heads_are_in_rows_of_four_and_too_many_are_refused(self):
        found = record(blocks__0__attn__hook_pattern=((1, 1, 6, 3, 3), "member batch head query key"))
        rows = [axes.get_subplotspec().rowspan.start for axes in found.plot(PATTERN).axes if axes.images]
        assert rows == [0, 0, 0, 0, 1, 1]
        found = record(blocks__0__attn__hook_pattern=((1, 1, 40, 3, 3), "member batch head query key"))
        with pytest.raises(SpecError, match=r"has 40 maps, more than a figure has room for; .*head=0"):
            found.plot(PATTERN)
        assert len(maps(found.plot(PATTERN, head=39))) == 1


def swept(members=2):
    baseline = torch.tensor([[0.9, 0.8, 0.7][:members]])
    values = torch.arange(members * 4).view(1, members, 2, 2) / 10
    return Effects(("accuracy",), ("blocks.0.attn.hook_z", "blocks.1.attn.hook_z"), ("head",), baseline, values)


class TestSweeps:
    def test_a_map_of_changes_for_each_member(self):
        drawing = swept().plot("accuracy")
        shown = maps(drawing)
        np.testing.assert_allclose(shown["member 0"], [[-0.9, -0.8], [-0.7, -0.6]], atol=1e-6)
        np.testing.assert_allclose(shown["member 1"], [[-0.4, -0.3], [-0.2, -0.1]], atol=1e-6)
        axes = drawing.axes[0]
        assert (axes.get_ylabel(), axes.get_xlabel(), ticks(axes.yaxis)) == ("layer", "head", ["0", "1"])
        assert drawing.get_suptitle() == "Change of accuracy, blocks.*.attn.hook_z"
        scale = axes.images[0].norm
        assert scale.vmin == -scale.vmax == pytest.approx(-0.9)

    def test_one_member_and_further_axes_as_rows(self):
        ((title, shown),) = maps(swept().plot(member=1)).items()
        assert title == "member 1"
        np.testing.assert_allclose(shown, [[-0.4, -0.3], [-0.2, -0.1]], atol=1e-6)
        values = torch.arange(12.0).view(1, 1, 2, 2, 3)
        found = Effects(("loss",), ("blocks.0.x", "blocks.1.x"), ("head", "query"), torch.zeros(1, 1), values)
        drawing = found.plot("loss")
        ((_, shown),) = maps(drawing).items()
        assert (shown == np.arange(12).reshape(4, 3)).all()
        assert ticks(drawing.axes[0].yaxis) == ["0, head 0", "0, head 1", "1, head 0", "1, head 1"]


class TestPatching:
    def test_a_map_of_recovered_fractions(self):
        difference = torch.tensor([[[[0.0, 1.0], [2.0, 4.0]]]])  # [member site head position]
        sites, over = ("blocks.3.attn.hook_z",), ("head", "position")
        drawing = Patching(sites, over, torch.tensor([4.0]), torch.tensor([0.0]), difference).plot()
        ((_, shown),) = maps(drawing).items()
        np.testing.assert_allclose(shown, [[0, 0.25], [0.5, 1]])
        assert ticks(drawing.axes[0].yaxis) == ["3, head 0", "3, head 1"]
        assert drawing.axes[0].get_xlabel() == "position"
        assert drawing.get_suptitle() == "Recovered by each patch,\nblocks.*.attn.hook_z"


class TestPathPatching:
    def test_a_map_for_each_input(self):
        difference = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])  # [member sender receiver input]
        ends = torch.tensor([4.0]), torch.tensor([0.0])
        drawing = PathPatching(((0, 1),), ((1, 0), (1, 3)), ("q", "v"), *ends, difference).plot()
        shown = maps(drawing)
        np.testing.assert_allclose(shown["member 0, q"], [[0.25, 0.75]])
        np.testing.assert_allclose(shown["member 0, v"], [[0.5, 1]])
        axes = drawing.axes[0]
        assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["0.1"], ["1.0", "1.3"])
        assert (axes.get_ylabel(), axes.get_xlabel()) == ("sender", "receiver")


class TestSteering:
    def test_curves_over_multiples_beside_random_directions(self):
        values = torch.tensor([[[[0.2, 0.4]], [[0.4, 0.8]]]])  # [metric member site multiple]
        random = torch.tensor([[[[[0.1, 0.1]], [[0.1, 0.3]]]]])  # [direction metric member site multiple]
        steering = Steering(("accuracy",), ("blocks.0.x",), (-1.0, 2.0), values, random)
        axes = steering.plot().axes[0]
        assert [curve.get_label() for curve in axes.lines] == ["blocks.0.x", "random directions"]
        np.testing.assert_allclose(axes.lines[0].get_xdata(), [-1, 2])
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.3, 0.6], atol=1e-6)
        np.testing.assert_allclose(axes.lines[1].get_ydata(), [0.1, 0.2], atol=1e-6)


class TestFindings:
    def test_by_title_or_a_part_of_it(self, findings):
        for title in ("Height against size", "against SIZE"):
            drawing = findings.plot(title)
            assert drawing.get_suptitle() == "Height against size"
            assert PROVENANCE.line.split(" · ")[0] in drawing.get_supxlabel()
        assert list(maps(findings.plot("A map"))) == ["layer 0"]


class TestCircuits:
    def test_roles_layers_and_losses(self):
        drawing = circuit(path(0, JOIN, cut=0.51), path(2, FIRST, cut=0.25)).plot("how it follows")
        (axes,) = drawing.axes
        assert drawing.get_suptitle() == "how it follows"
        assert {"0.51", "0.25"} <= {text.get_text() for text in axes.texts}
        assert ticks(axes.yaxis) == ["layer 0", "layer 2"]


class TestLandscapes:
    FOUND = made(two_of_three, parallel)

    def test_best_loss_by_number_of_units(self):
        """Three units are needed in the first member, one in the second; the effect is 1."""
        axes = self.FOUND.plot(share=0.2).axes[0]
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [1, 1, 1, 0, 0, 0])
        np.testing.assert_allclose(axes.lines[1].get_ydata(), [1, 0, 0, 0, 0, 0])
        assert list(axes.lines[2].get_ydata()) == [0.2, 0.2]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("units kept", "rise of the loss / effect")
        assert len(self.FOUND.plot(member=1).axes[0].lines) == 2

    def test_shapley_values(self):
        axes = self.FOUND.plot("shapley").axes[0]
        np.testing.assert_allclose(axes.images[0].get_array()[0], [0, 1 / 2, 1 / 6, 1 / 6, 1 / 6], atol=1e-12)
        assert (ticks(axes.xaxis), ticks(axes.yaxis)) == ([*UNITS], ["0", "1"])
        with pytest.raises(SpecError, match=r"^share: sets a threshold, and Shapley values have none; leave it out$"):
            self.FOUND.plot("shapley", share=0.2)

    def test_minimal_sets(self):
        drawing = self.FOUND.plot("minimal")
        shown, nan = maps(drawing), np.nan
        np.testing.assert_allclose(shown["member 0: 3 sets"], [
            [nan, 1, 1, 1, nan],
            [nan, 1, 1, nan, 1],
            [nan, 1, nan, 1, 1],
        ])  # fmt: skip
        np.testing.assert_allclose(shown["member 1: 3 sets"], [
            [nan, nan, nan, nan, 1],
            [1, nan, 1, nan, nan],
            [nan, 1, nan, 1, nan],
        ])  # fmt: skip
        assert ticks(drawing.axes[0].yaxis) == ["0", "0", "0"]
        assert [*maps(self.FOUND.plot("minimal", member=1))] == ["member 1: 3 sets"]


OF_PATTERNS = record(blocks__0__attn__hook_pattern=((1, 2, 2, 3, 3), "member batch head query key"))
STEERING = Steering(("accuracy",), ("x",), (-1.0, 2.0), torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 1, 2))
TITLES = "choose one of Height against size; A map$"


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda run, _: al.plot([]), r"^runs: are not runs; give what al\.train"),
        (lambda run, _: al.plot([run.run]), "^runs: are not runs"),
        (lambda run, _: run.plot(metric="acuracy"), r"^metric: unknown metric 'acuracy'; did you mean 'accuracy'\?"),
        (lambda run, _: run.plot(metric="height"), "^metric: unknown metric 'height'; known: accuracy, .*loss"),
        (lambda run, _: run.plot(split="tests"), r"^split: unknown split 'tests'; did you mean 'test'\?"),
        (lambda run, _: run.plot(group="rare"), "^group: unknown group 'rare'; known: all"),
        (lambda *_: OF_PATTERNS.plot(f"{PATTERN}s"), "unknown site 'blocks.0.attn.hook_patterns'; did you mean"),
        (lambda *_: OF_PATTERNS.plot(PATTERN, layer=0),
         r"^at\.layer: unknown axis 'layer'; .* has the axes member, batch, head"),
        (lambda *_: OF_PATTERNS.plot(PATTERN, head=2), r"^at\.head: index 2 is out of range"),
        (lambda *_: swept().plot("logits"), "^metric: unknown metric 'logits'; known: accuracy"),
        (lambda *_: swept().plot(member=2), "^member: there is no member 2; choose one from 0 to 1"),
        (lambda *_: STEERING.plot("acuracy"), "^metric: unknown metric 'acuracy'; did you mean 'accuracy'"),
        (lambda _, findings: findings.plot(None), f"^title: is missing; {TITLES}"),
        (lambda _, findings: findings.plot("Width"), f"^title: no figures have 'Width' in their titles; {TITLES}"),
        (lambda _, findings: findings.plot("a"), f"^title: 2 figures have 'a' in their titles; {TITLES}"),
        (lambda *_: TestLandscapes.FOUND.plot("shaply"), "^what: unknown drawing 'shaply'; did you mean 'shapley'"),
        (lambda *_: TestLandscapes.FOUND.plot(member=2), "^member: there is no member 2; choose from 0..1"),
        (lambda *_: made(*[two_of_three] * 33).plot("minimal"), "^member: 33 maps do not fit into a figure"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_named(trained, findings, draw, message):
    with pytest.raises((SiteError, SpecError), match=message):
        draw(trained, findings)


def test_a_drawing_shows_itself_without_pyplot(findings):
    png, shown_at = findings.plot("A map")._repr_png_()
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))  # of the image header
    assert png[:4] == b"\x89PNG"
    assert (shown_at["width"], shown_at["height"]) == (round(width / 2), round(height / 2))  # 220 dots an inch at 110
