"""The truncation search: on a model whose one loud matrix is known, against edits by `look`, and resumed."""

from dataclasses import replace

import pytest
import torch

from anchorlab.errors import SpecError
from anchorlab.language import wrap
from anchorlab.language.answers import Questions, combine
from anchorlab.language.losses import text_losses
from anchorlab.language.next_words import continue_text, edited_weights, next_words
from anchorlab.language.prompts import Prompt
from anchorlab.language.truncation_controls import control_truncation
from anchorlab.language.truncations import TruncationSearch, matrices, search_truncations
from anchorlab.lens import generate, look
from anchorlab.models import Remove, Truncate
from tests.language.spoken import LAYERS, LOUD, PROMPTS, VOCABULARY, spoken, token, tokenizer
from tests.language.tiny import hugging_face, transformers

LOUD_MATRIX = f"blocks.{LOUD}.mlp.W_out"
SITE = f"blocks.{LOUD}.mlp.hook_post"  # what it is multiplied by


def test_the_search_finds_the_matrix_that_says_the_and_nothing_where_none_does():
    asked = Questions(spoken(), PROMPTS)
    found = search_truncations(asked)
    assert found.best() == Truncate(weight=LOUD_MATRIX, fraction=0.0)
    assert len(found.weights) == LAYERS * 6
    assert found.best("**.attn.W_V", "**.W_in").weight != LOUD_MATRIX
    assert found.table()["weight"][0] == LOUD_MATRIX
    best = found.answers[found.weights.index(LOUD_MATRIX)][found.fractions.index(0.0)]
    torch.testing.assert_close(best.right, Questions(spoken(0.0), PROMPTS).answers().right)
    assert float(best.right.mean()) > float(found.full.right.mean()) + 0.5
    found = search_truncations(Questions(spoken(0.0), PROMPTS))
    torch.testing.assert_close(float(found.loss.min()), -float(found.full.right.mean()))


def test_a_truncation_with_which_the_model_gives_nan_is_not_the_best():
    full = Questions(spoken(), PROMPTS).answers()
    every = combine([combine([full] * 2)] * 2)  # [weight fraction prompt]
    right = torch.tensor([[-3.0, torch.nan], [-2.0, -5.0]]).unsqueeze(-1).expand(every.right.shape)
    found = TruncationSearch(("first", "second"), (0.0, 0.5), replace(every, right=right), full)
    assert found.best() == Truncate(weight="second", fraction=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox-parallel", "llama", "gemma3_text"])
def test_answers_of_the_search_are_those_of_edits(name):
    model = wrap(hugging_face(name), tokenizer())
    asked = Questions(model, PROMPTS)
    found = search_truncations(asked, ["blocks.[12].**"], (0.0, 0.1, 0.5))
    last = torch.tensor([asked.tokens.inputs.shape[1] - 1])
    for row, weight in enumerate(found.weights):
        for column, fraction in enumerate(found.fractions):
            edits = [Truncate(weight=weight, fraction=fraction)]
            seen = look(model, asked.tokens.inputs, positions=last, edits=edits)["output"][0, :, 0].log_softmax(-1)
            expected = seen.gather(1, asked.tokens.answers[:, None])[:, 0]
            torch.testing.assert_close(found.answers.right[row, column], expected, atol=1e-4, rtol=1e-4)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_with_the_same_bytes(tmp_path):
    def kill(done: int, total: int) -> None:
        if done > total // 2:
            raise Killed

    asked = Questions(wrap(hugging_face("llama"), tokenizer()), PROMPTS)
    with pytest.raises(Killed):
        search_truncations(asked, keep=tmp_path / "cut", progress=kill)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").iterdir()}
    resumed = search_truncations(Questions(asked.model, PROMPTS), keep=tmp_path / "cut")
    whole = search_truncations(asked, keep=tmp_path / "whole")
    assert 0 < len(before) < len(whole.weights)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    files = [sorted((path.name, path.read_bytes()) for path in (tmp_path / it).iterdir()) for it in ("cut", "whole")]
    assert files[0] == files[1]
    assert all(torch.equal(whole.answers.tensors[name], value) for name, value in resumed.answers.tensors.items())


def test_a_damaged_file_is_computed_again(tmp_path):
    asked = Questions(spoken(), PROMPTS)
    whole = search_truncations(asked, [LOUD_MATRIX], keep=str(tmp_path))
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\xff")
    again = search_truncations(asked, [LOUD_MATRIX], keep=tmp_path)
    assert torch.equal(again.loss, whole.loss)
    assert file.read_bytes() == content


@pytest.mark.parametrize("change", ["weights", "setting", "prompts", "answers", "candidates", "words", "fractions"])
def test_what_was_kept_of_another_search_is_not_taken(tmp_path, change):
    search_truncations(Questions(spoken(), PROMPTS), [LOUD_MATRIX], (0.0,), keep=tmp_path)
    model = spoken(2.0 if change == "weights" else 3.0)
    if change == "setting":
        model.hugging_face.config.activation_function = "gelu"
    prompts = {
        "prompts": PROMPTS[:2],
        "answers": tuple(replace(one, answer="Europe") for one in PROMPTS),
        "candidates": tuple(replace(one, candidates=("Europe",)) for one in PROMPTS),
    }.get(change, PROMPTS)
    asked = Questions(model, prompts, ("in", "to") if change == "words" else None)
    fractions = (0.5,) if change == "fractions" else (0.0,)
    found = search_truncations(asked, [LOUD_MATRIX], fractions, keep=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    alone = search_truncations(asked, [LOUD_MATRIX], fractions)
    assert all(torch.equal(found.answers.tensors[name], value) for name, value in alone.answers.tensors.items())


def test_matrices_are_named_once_and_progress_counts_the_blocks_that_are_computed():
    told: list[tuple[int, int]] = []
    search_truncations(Questions(spoken(), PROMPTS), ["**.W_in"], (0.0,), progress=lambda *now: told.append(now))
    assert told == [(0, 6), (3, 6), (5, 6), (6, 6)]
    assert matrices(spoken(), ["blocks.0.mlp.W_*", "**.W_in", "blocks.?.ln1.w"][:2])[:3] == [
        "blocks.0.mlp.W_in", "blocks.0.mlp.W_out", "blocks.1.mlp.W_in",
    ]  # fmt: skip


TEXT = torch.tensor([[VOCABULARY["Madrid"], token("is"), token("Spain"), token("x"), token("to")]])


def test_the_right_truncation_passes_its_controls_and_a_removed_answer_fails():
    asked = Questions(spoken(), PROMPTS)
    found = control_truncation(asked, Truncate(weight=LOUD_MATRIX, fraction=0), TEXT, draws=20)
    assert found.gain > 0.5
    assert float(found.random_gains.max()) < found.gain
    assert float(found.random_gains.median()) < found.gain / 2
    assert found.random.right.shape == (20, 3)
    torch.testing.assert_close(found.cut.right, Questions(spoken(0.0), PROMPTS).answers().right)
    torch.testing.assert_close(found.cut_losses, text_losses(spoken(0.0), TEXT))
    torch.testing.assert_close(found.full_losses, text_losses(asked.model, TEXT))
    # without what maps cities to countries the right answer falls, and by more than the other ones of its kind
    found = control_truncation(Questions(spoken(), PROMPTS), Truncate(weight="blocks.0.attn.W_O", fraction=0), TEXT)
    assert found.gain < float(found.random_gains.max())
    assert found.gain < found.others_gain


@pytest.mark.parametrize("fraction", [0.0, 0.25])
def test_random_changes_change_the_output_as_much_as_the_truncation_and_have_a_seed(monkeypatch, fraction):
    asked = Questions(wrap(hugging_face("llama"), tokenizer()), PROMPTS)
    cut = Truncate(weight=LOUD_MATRIX, fraction=fraction)
    given: list[torch.Tensor] = []
    answers = asked.answers

    def watching(weights: dict[str, torch.Tensor] | None = None) -> object:
        given.extend((weights or {}).values())
        return answers(weights)

    monkeypatch.setattr(asked, "answers", watching)
    first = control_truncation(asked, cut, TEXT, draws=3)
    whole = asked.model.get_parameter(LOUD_MATRIX).detach()
    record = look(asked.model, asked.tokens.inputs, [SITE])  # prompts of one length, so that nothing is padded
    stream = torch.as_tensor(record[SITE]).flatten(0, -2)
    sizes = torch.stack([(stream @ (one - whole)).norm() for one in given])
    left, singular, right = torch.linalg.svd(whole)
    dropped = round(fraction * min(whole.shape))
    removed = left[:, dropped : len(singular)] * singular[dropped:] @ right[dropped:]
    torch.testing.assert_close(sizes, (stream @ removed).norm().expand(4))
    assert len({float(one[0, 0]) for one in given}) == 4
    assert torch.equal(control_truncation(asked, cut, TEXT, draws=3).random.right, first.random.right)
    assert not torch.equal(control_truncation(asked, cut, TEXT, draws=3, seed=1).random.right, first.random.right)


def test_perplexity_is_that_of_transformers():
    model = hugging_face("llama")
    found = control_truncation(
        Questions(wrap(model, tokenizer()), PROMPTS), Truncate(weight=LOUD_MATRIX, fraction=0.5), TEXT, draws=1
    )
    with torch.no_grad():
        loss = model(TEXT, labels=TEXT, use_cache=False).loss
    assert found.perplexities[0] == pytest.approx(float(loss.exp()), rel=1e-5)


def test_padding_does_not_count_in_the_perplexity():
    asked, cut = Questions(spoken(), PROMPTS), Truncate(weight=LOUD_MATRIX, fraction=0)
    short, long = "Madrid is", "Madrid is to the"
    found = control_truncation(asked, cut, asked.model.tokenise([short, long]), draws=1)
    each = [text_losses(asked.model, asked.model.tokenise([text]).inputs).flatten() for text in (short, long)]
    assert found.perplexities[0] == pytest.approx(float(torch.cat(each).mean().exp()), rel=1e-5)


def test_a_sentence_before_and_after():
    model, cut = spoken(), [Remove(weight=LOUD_MATRIX)]
    assert continue_text(model, "Madrid located in", 1) == "Madrid located in the"
    assert continue_text(model, "Madrid located", 0) == "Madrid located"
    assert next_words(model, "Paris is", 1)[0][0] == " the"
    probabilities = dict(next_words(model, "Paris is", len(VOCABULARY), cut))
    assert probabilities[" France"] > 10 * probabilities[" Spain"]
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert len(continue_text(model, "Madrid", 100).split()) == 11  # the context holds 12 tokens, with the start


def _tokenizer(vocabulary, prepare, decoder):
    from tokenizers import Tokenizer, models

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(vocabulary)}, unk_token="<?>"))
    made.pre_tokenizer, made.decoder = prepare, decoder
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<?>")


def _by_position(tokenizer, *said):
    """A model that says the token `said[p]` after position p, whatever the text."""
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=1, n_positions=4, vocab_size=len(tokenizer), tie_word_embeddings=False
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
        model.transformer.ln_f.weight.fill_(1.0)
        model.transformer.wpe.weight.copy_(torch.eye(4, 8))
        for place, token in enumerate(said):
            model.lm_head.weight[token, place] = 1.0
    return wrap(model, tokenizer)


def test_a_continuation_has_its_spaces_and_letters_of_several_bytes():
    """As Llama's, the first tokenizer drops the space that begins a text; the second has a token for each byte of é."""
    from tokenizers import decoders, pre_tokenizers

    model = _by_position(_tokenizer(["<?>", "▁to", "▁the"], pre_tokenizers.Metaspace(), decoders.Metaspace()), 2, 1)
    assert model.words(torch.tensor([1, 2])) == [" to", " the"]
    assert next_words(model, "to", 1)[0][0] == " the"
    assert continue_text(model, "to", 2) == "to the to"
    assert generate(model, ["to"], 2).said == (" the to",)
    joins = decoders.Sequence([decoders.Fuse(), decoders.Replace("tothe", "tithe")])
    changed = _by_position(_tokenizer(["<?>", "to", "the"], pre_tokenizers.Whitespace(), joins), 2)
    assert generate(changed, ["to"], 1).said == ("the",)  # read and said together are "tithe", without "to"
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    model = _by_position(_tokenizer(["<?>", "to", "Ã", "©"], *in_bytes), 2, 3)
    assert continue_text(model, "to", 2) == "toé"
    assert generate(model, ["to"], 2).said == ("é",)


def test_every_edit_is_applied_and_the_later_ones_to_what_the_earlier_left():
    model, other = spoken(), "blocks.0.attn.W_O"
    assert set(edited_weights(model, [Remove(weight=LOUD_MATRIX)])) == {LOUD_MATRIX}
    found = edited_weights(model, [Remove(weight=LOUD_MATRIX), Truncate(weight=other, rank=1)])
    assert set(found) == {LOUD_MATRIX, other}
    assert not found[LOUD_MATRIX].any()
    assert torch.linalg.matrix_rank(model.get_parameter(other)) == 2  # two countries
    assert torch.linalg.matrix_rank(found[other]) == 1
    assert not edited_weights(model, [Remove(weight=other), Truncate(weight=other, rank=1)])[other].any()


def test_one_edit_needs_no_list():
    cut = Remove(weight=LOUD_MATRIX)
    assert next_words(spoken(), "Paris is", 3, cut) == next_words(spoken(), "Paris is", 3, [cut])
    assert continue_text(spoken(), "Paris is", 1, cut) == "Paris is France"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda asked: search_truncations(asked, ["blocks.1.mlp.W_inn"]), r"weights\.0.*blocks\.1\.mlp\.W_inn"),
        (lambda asked: search_truncations(asked, fractions=[1.2]), r"fractions.*not fractions of the rank"),
        (lambda asked: search_truncations(Questions(spoken(), [Prompt("to")])), "prompts: none has a right answer"),
        (
            lambda asked: search_truncations(
                Questions(asked.model, [Prompt("Madrid is", "Spain", ("Spain to",))], words=())
            ),
            "prompts: none has a right answer that is scored; 'Spain' begins another",
        ),
        (lambda asked: search_truncations(asked, []), "weights: there are none"),
        (lambda asked: search_truncations(asked, ["**.W_in"]).best("**.W_out"), "weights"),
        (lambda asked: control_truncation(asked, Truncate(weight=LOUD_MATRIX, fraction=1), TEXT), "truncation"),
        (lambda asked: control_truncation(asked, Truncate(weight="embed.W_E", rank=2), TEXT), "weight: 'embed.W_E'"),
        (lambda asked: control_truncation(asked, Truncate(weight=LOUD_MATRIX, rank=2), TEXT, draws=0), "draws: 0"),
        *((lambda asked, k=k: next_words(asked.model, "to", k), f"k: {k} tokens") for k in (0, len(VOCABULARY) + 1)),
        *((lambda asked, text=text: next_words(asked.model, text), "text") for text in ("Madrid ", "", " ")),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(SpecError, match=words):
        call(Questions(spoken(), PROMPTS))
