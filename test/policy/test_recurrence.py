"""The memory behind the message: a policy's tick and torch agree; its window."""

import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.policy.recurrence import RecurrentLayers
from an_control.policy.sizes import RecurrenceSizes

INPUTS = 3
TRANSFORMERS = ("trxl", "trxl-i", "gtrxl")
SIZES = {
    "lstm": RecurrenceSizes("lstm", 5),
    "gru": RecurrenceSizes("gru", 5),
    **{kind: RecurrenceSizes(kind, 8, 2, 2, 5) for kind in TRANSFORMERS},
}


@pytest.fixture(params=list(SIZES))
def sizes(request):
    return SIZES[request.param]


@pytest.fixture(params=TRANSFORMERS)
def transformer(request):
    return SIZES[request.param]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs the train extra")


@pytest.fixture(scope="module")
def learned(torch):
    """The torch module's class."""
    from an_control.learning.recurrence import RecurrenceModule

    return RecurrenceModule


def arrays_of(sizes, seed=1, gain=1.5):
    """Random weights, as `make_random_model` draws them."""
    rng, arrays = np.random.default_rng(seed), {}
    for name, shape in sizes.list_array_shapes(INPUTS).items():
        limit = gain / math.sqrt(math.prod(shape[1:] or shape))
        array = rng.uniform(-limit, limit, shape) + name.endswith("norm.weight")
        arrays[name] = array.astype(np.float32)
    return arrays


def inputs_of(ticks, rows=1, seed=2):
    """(ticks, rows, INPUTS) float32."""
    return np.random.default_rng(seed).normal(size=(ticks, rows, INPUTS)).astype(np.float32)


def run(recurrence, inputs, resets=()):
    """The outputs (ticks, units) of one row; a reset comes before its tick."""
    outputs = []
    for tick, x in enumerate(inputs):
        if tick in resets:
            recurrence.reset()
        outputs.append(recurrence.step(x))
    return np.array(outputs)


def in_pieces(torch, module, inputs, cuts, resets=()):
    """The outputs (ticks, rows, units); `resets` are (tick, row), at cuts alone."""
    state, outputs = module.make_initial_state(inputs.shape[1]), []
    for begin, end in pairwise([0, *cuts, len(inputs)]):
        keep = torch.tensor([(begin, row) not in resets for row in range(inputs.shape[1])])
        state = tuple(part * keep.view(-1, *[1] * (part.ndim - 1)) for part in state)
        with torch.no_grad():
            piece, state = module(torch.from_numpy(inputs[begin:end]), state)
        outputs.append(piece.numpy())
    return np.concatenate(outputs)


def assert_agreement(torch, learned, sizes, inputs, cuts, resets):
    """`resets` are (tick, row), each tick one of `cuts`."""
    arrays = arrays_of(sizes)
    module = learned(INPUTS, sizes)
    module.load_arrays(arrays)
    outputs = in_pieces(torch, module, inputs, cuts, resets)
    for row in range(inputs.shape[1]):
        ticks = {tick for tick, one in resets if one == row}
        stepped = run(RecurrentLayers(sizes, arrays), inputs[:, row], ticks)
        np.testing.assert_allclose(outputs[:, row], stepped, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cuts", [(), (1, 2, 9, 13), (7,)], ids=str)
def test_the_tick_and_torch_agree(torch, learned, sizes, cuts):
    assert_agreement(torch, learned, sizes, inputs_of(15, rows=2), cuts, ())


def test_a_row_whose_state_is_zeroed_starts_anew_and_the_others_do_not(torch, learned, sizes):
    resets = {(7, 0), (9, 1), (9, 2)}
    assert_agreement(torch, learned, sizes, inputs_of(15, rows=4), (3, 7, 9), resets)


@pytest.mark.parametrize("ticks", [1, 4, 15])
def test_the_last_output_alone_is_the_last_of_all(torch, learned, sizes, ticks):
    module = learned(INPUTS, sizes)
    module.load_arrays(arrays_of(sizes))
    inputs = inputs_of(ticks, rows=3)
    with torch.no_grad():
        last = module.compute_last_output(torch.from_numpy(inputs)).numpy()
    every = in_pieces(torch, module, inputs, ())
    np.testing.assert_allclose(last, every[-1], rtol=0, atol=1e-6)


@st.composite
def cases(draw):
    """Sizes, ticks, cuts, and resets of two rows."""
    kind = draw(st.sampled_from(list(SIZES)))
    size = st.integers(1, 3)
    heads, width = draw(size), draw(size)
    sizes = RecurrenceSizes(kind, 2 * heads * width)
    if kind in TRANSFORMERS:
        sizes = RecurrenceSizes(kind, sizes.units, draw(size), heads, draw(st.integers(1, 6)))
    ticks = 3 * sizes.window
    cuts = sorted(draw(st.sets(st.integers(1, max(ticks - 1, 1)), max_size=4)))
    resets = {(cut, row) for cut in cuts for row in (0, 1) if draw(st.booleans())}
    return sizes, ticks, cuts, resets


@settings(max_examples=25)
@given(case=cases())
def test_they_agree_in_any_sizes_cut_anywhere(torch, learned, case):
    sizes, ticks, cuts, resets = case
    assert_agreement(torch, learned, sizes, inputs_of(ticks, rows=2), cuts, resets)


def test_what_lies_beyond_the_windows_reach_has_no_influence_and_what_is_within_has(
    torch, learned, transformer
):
    reach = transformer.layers * (transformer.window - 1)
    arrays, inputs = arrays_of(transformer), inputs_of(reach + 4)
    module = learned(INPUTS, transformer)
    module.load_arrays(arrays)
    other = inputs.copy()
    other[0] += 1.0
    for outputs in (
        [run(RecurrentLayers(transformer, arrays), x[:, 0]) for x in (inputs, other)],
        [in_pieces(torch, module.double(), x.astype(float), (2, 6)) for x in (inputs, other)],
    ):
        difference = np.abs(outputs[0] - outputs[1]).reshape(len(inputs), -1).max(axis=1)
        assert (difference[: reach + 1] > 1e-9).all()
        assert (difference[reach + 1 :] == 0.0).all()


def test_no_more_is_kept_than_the_window_however_long_it_runs(transformer):
    recurrence = RecurrentLayers(transformer, arrays_of(transformer))
    kept = []
    for x in inputs_of(40)[:, 0]:
        recurrence.step(x)
        kept.append(len(pickle.dumps(recurrence)))
    assert kept[:5] == sorted(set(kept[:5]))
    assert set(kept[4:]) == {kept[4]}


def test_after_a_reset_nothing_is_remembered(sizes):
    recurrence, inputs = RecurrentLayers(sizes, arrays_of(sizes)), inputs_of(8)[:, 0]
    first, again = run(recurrence, inputs), run(recurrence, inputs, {0})
    assert again.tobytes() == first.tobytes()


def test_an_output_is_not_overwritten_by_the_next_tick(sizes):
    recurrence, inputs = RecurrentLayers(sizes, arrays_of(sizes)), inputs_of(2)[:, 0]
    first = recurrence.step(inputs[0])
    kept = first.tobytes()
    recurrence.step(inputs[1])
    assert first.tobytes() == kept


def test_huge_inputs_stay_finite(sizes):
    recurrence = RecurrentLayers(sizes, arrays_of(sizes))
    assert np.isfinite(run(recurrence, 1e6 * inputs_of(8)[:, 0])).all()


def test_gradients_are_right_through_pieces_and_their_state(torch, learned):
    torch.manual_seed(0)
    module = learned(2, RecurrenceSizes("gtrxl", 4, 2, 2, 3)).double()
    state = torch.randn(2, 2, 2, 4, dtype=torch.float64, requires_grad=True)
    filled = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    parameters = tuple(module.parameters())

    def outputs(x, state, *_):
        first, carried = module(x[:3], (state, filled))
        return torch.cat([first, module(x[3:], carried)[0]])

    assert torch.autograd.gradcheck(outputs, (x, state, *parameters), fast_mode=True)


def test_a_gate_with_bias_2_passes_its_input_nearly_unchanged_at_first(torch, learned):
    def change(bias):
        torch.manual_seed(0)
        sizes = RecurrenceSizes("gtrxl", 32, 1, 4, 8)
        policy = RecurrentLayers(sizes, learned(INPUTS, sizes, bias).to_arrays())
        pairs = np.random.default_rng(3).normal(size=(500, 2, 32))
        added = [policy.add_residual("recurrence.layers.0.attention", x, y) for x, y in pairs]
        x = pairs[:, 0]
        return np.mean(np.linalg.norm(added - x, axis=1) / np.linalg.norm(x, axis=1))

    assert change(2.0) < 0.25
    assert change(0.0) > 2.5 * change(2.0)


def test_a_files_arrays_come_back_bit_for_bit(learned, sizes):
    arrays = arrays_of(sizes)
    module = learned(INPUTS, sizes)
    assert {n: a.shape for n, a in module.to_arrays().items()} == sizes.list_array_shapes(INPUTS)
    module.load_arrays(arrays | {"head.0.bias": np.zeros(2, np.float32)})
    back = module.to_arrays()
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == np.float32 and back[name].tobytes() == array.tobytes(), name


def test_arrays_of_other_sizes_are_refused(learned, sizes):
    other = RecurrenceSizes(sizes.kind, 2 * sizes.units, sizes.layers, sizes.heads, sizes.window)
    with pytest.raises(RuntimeError, match="size mismatch"):
        learned(INPUTS, sizes).load_arrays(arrays_of(other))


def test_what_is_not_named_in_a_header_is_1():
    assert RecurrenceSizes.from_header({"kind": "gru", "units": 3}) == RecurrenceSizes(
        "gru", 3, 1, 1, 1
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"more": 1}, "more: unknown, allowed are kind, units"),
        ({"kind": "rnn"}, "kind: 'rnn' is not one of 'lstm', 'gru', 'trxl', 'trxl-i', 'gtrxl'"),
        ({"kind": ["lstm"]}, r"kind: \['lstm'\]"),
        ({"units": 0}, "units: 0 is not a whole number from 1 to 65536"),
        ({"units": 32.0}, "units: 32.0"),
        ({"units": True}, "units: True"),
        ({"units": 65537}, "units: 65537"),
        ({"units": 33}, "units: 33, gtrxl needs an even"),
        ({"layers": 17}, "layers: 17 is not a whole number from 1 to 16"),
        ({"heads": "4"}, "heads: '4'"),
        ({"heads": 3}, "heads: 3, must divide units 32"),
        ({"window": -1}, "window: -1"),
        ({"window": 4097}, "window: 4097 is not a whole number from 1 to 4096"),
        ({"window": None}, "window: None"),
        ({"kind": "lstm", "heads": 1, "window": 1}, "layers: 2, lstm allows 1"),
        ({"kind": "gru", "layers": 1, "window": 1}, "heads: 4, gru allows 1"),
        ({"kind": "gru", "layers": 1, "heads": 1}, "window: 64, gru allows 1"),
    ],
    ids=str,
)
def test_a_bad_header_is_refused_by_name(change, named):
    good = {"kind": "gtrxl", "units": 32, "layers": 2, "heads": 4, "window": 64}
    assert RecurrenceSizes.from_header(good) == RecurrenceSizes(**good)
    with pytest.raises(ValueError, match=rf"sizes\.recurrence\.{named}"):
        RecurrenceSizes.from_header(good | change)


def test_what_is_no_description_is_refused():
    with pytest.raises(ValueError, match=r"sizes\.recurrence: \[\] is not an object"):
        RecurrenceSizes.from_header([])
    with pytest.raises(ValueError, match=r"sizes\.recurrence: .*'kind' and 'units'"):
        RecurrenceSizes.from_header({})
