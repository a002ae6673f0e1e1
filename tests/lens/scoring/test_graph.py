"""The units and edges of small models, listed by hand."""

from anchorlab.lens.scoring.graph import edges_of, receivers_of, units_of
from anchorlab.models import OneLayerSpec
from tests.lens.scoring.reference import BASE, SHAPE


def of(spec):
    template = spec.build(SHAPE)
    return units_of(template), receivers_of(template), [str(edge) for edge in edges_of(template)]


def test_two_heads_and_a_feed_forward_layer():
    units, receivers, edges = of(BASE.replace(layers=1))
    assert units == ("embed", "0.0", "0.1", "0.mlp")
    assert receivers == ("0.0.q", "0.1.q", "0.0.k", "0.1.k", "0.0.v", "0.1.v", "0.mlp", "logits")
    assert edges == [
        *(f"embed → {receiver}" for receiver in receivers[:6]),
        *(f"{unit} → 0.mlp" for unit in ("embed", "0.0", "0.1")),
        *(f"{unit} → logits" for unit in ("embed", "0.0", "0.1", "0.mlp")),
    ]


def test_heads_read_all_earlier_layers_and_none_of_their_own():
    _, _, edges = of(BASE.replace(feed_forward=(True, False), heads=1))
    assert [edge for edge in edges if edge.endswith("1.0.k")] == ["embed → 1.0.k", "0.0 → 1.0.k", "0.mlp → 1.0.k"]
    assert len(edges) == 3 + 2 + 3 * 3 + 4
    assert edges[-1] == "1.0 → logits"


def test_without_a_residual_path_no_edge_passes_a_block():
    _, _, edges = of(BASE.replace(heads=1, residual=(True, False)))
    assert [edge for edge in edges if edge.endswith("1.mlp")] == ["1.0 → 1.mlp"]
    assert [edge for edge in edges if edge.endswith("logits")] == ["1.mlp → logits"]


def test_parallel_layers_do_not_read_each_other():
    _, _, edges = of(OneLayerSpec(width=30))
    assert edges == [
        "embed → 0.0.q",
        "embed → 0.0.k",
        "embed → 0.0.v",
        "embed → 0.mlp",
        "0.0 → logits",
        "0.mlp → logits",
    ]
