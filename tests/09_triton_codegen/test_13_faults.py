"""What the checks find, and what they must leave alone: each kind of fault in a table of forms, beside right kernels."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import course_lib  # noqa: F401  (before Triton)

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "simulated"))

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("nothing is simulated where there is a GPU", allow_module_level=True)

from small_kernels import Input, Program

from course_lib import simulator, versions

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = Input("float32", 16)
PLACE = (
    r"^\S+.*:\d+: program \d+, lane (\d+|\(\d+, \d+\)) (reads|writes|changes) \w+\[-?\d+(, \d+)*\]"
)
"""How a sentence begins: line, program, lane, and the address as `tensor[index]`."""


def said(body, *tensors, grid=(1,), n=10, refusals=False, **names):
    """The sentences about one launch of a kernel with this text; `tensors` end with the output."""
    inputs = dict.fromkeys("XYZ"[: len(tensors) - 1], NUMBERS)
    kernel = Program("faults", body, inputs, NUMBERS).kernel()
    with simulator.using(collect=True, refusals=refusals):
        kernel[grid](*tensors, n, 16)
    return simulator.faults_of_last_launch()


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


# A lane that a mask left without a value
# ------------------------------------------------------------------------------------------------

LANE_BY_LANE = [
    "x + 1", "x * x", "x / 3", "-x", "tl.exp(x)", "tl.log2(x)", "tl.sqrt(x)", "tl.rsqrt(x)", "tl.abs(x)",
    "tl.erf(x)", "tl.sin(x)", "tl.floor(x)", "tl.maximum(x, 1.0)", "tl.clamp(x, 0.0, 2.0)", "tl.fma(x, x, x)",
    "x.to(tl.bfloat16).to(tl.float32)", "x.to(tl.int32)", "x.to(tl.int32, bitcast=True)", "x > 0", "x.to(tl.int32) // 2",
    "x.to(tl.int32) & 3", "tl.umulhi(x.to(tl.int32), 5)", "libdevice.tanh(x)", "libdevice.pow(x, x)",
    "tl.where(x > 0, 1.0, 2.0)", "tl.sigmoid(x)", "tl.reshape(tl.reshape(x, [4, 4]), [16])",
    "tl.cumsum(x, 0)", "tl.cumprod(x, 0)", "tl.gather(x, i, 0)",
    "tl.reshape(tl.trans(tl.trans(tl.reshape(x, [4, 4]))), [16])",
    "tl.join(x, x).split()[0]", "tl.interleave(*tl.split(tl.reshape(x, [8, 2])))",
    "tl.sum(tl.broadcast_to(x[:, None], [16, 2]), 1)",
]  # fmt: skip


@pytest.mark.parametrize("expression", LANE_BY_LANE)
def test_a_lane_without_a_value_is_followed_lane_by_lane(expression):
    body = f"i = tl.arange(0, N)\nx = tl.load(X + i, mask=i < n)\ny = {expression}\n"
    stored = "tl.store(O + i, y.to(tl.float32), mask=i < {})"
    assert said(body + stored.format("n"), ones(16), ones(16)) == []
    found = said(body + stored.format("n + 1"), ones(16), ones(16))
    assert [re.sub(".*: program", "program", sentence) for sentence in found] == [
        "program 0, lane 10 writes O[10] with a lane that a mask left without a value; give the load an `other=`"
    ]


FROM_ALL = [
    "tl.sum(x, 0)", "tl.max(x, 0)", "tl.argmax(x, 0)", "tl.min(x, 0)", "tl.xor_sum(x.to(tl.int32), 0)",
    "tl.sum(tl.cumsum(x, 0, reverse=True), 0)", "tl.max(tl.sort(x), 0)", "tl.sum(tl.histogram(x.to(tl.int32), 8), 0)",
    "tl.sum(tl.flip(x, 0), 0)", "tl.sum(x * (i < n), 0)", "tl.sum(tl.gather(x, 15 - i, 0), 0)",
    "tl.max(tl.cat(x, x, can_reorder=True), 0)", "tl.sum(tl.sum(tl.reshape(x, [4, 4]), 0), 0)",
]  # fmt: skip


@pytest.mark.parametrize("expression", FROM_ALL)
def test_what_takes_in_a_lane_without_a_value_has_none(expression):
    body = f"i = tl.arange(0, N)\nx = tl.load(X + i, mask=i < n{{}})\ntl.store(O, {expression})"
    assert any("without a value" in s for s in said(body.format(""), ones(16), ones(16)))
    assert said(body.format(", other=0.0"), ones(16), ones(16)) == []


DECISIONS = {
    "branches": "if tl.max(x, 0) > 0:\n    tl.store(O, 1.0)",
    "loops": "for k in range(tl.max(x, 0).to(tl.int32)):\n    tl.store(O, 1.0)",
    "branches ": "while tl.max(x, 0) > 2:\n    x = x - 1",
    "branches  ": "tl.store(O, 1.0 if tl.max(x, 0) > 0 else 2.0)",
}


@pytest.mark.parametrize("word", DECISIONS)
def test_a_branch_or_a_loop_does_not_hang_on_a_lane_without_a_value(word):
    body = f"i = tl.arange(0, N)\nx = tl.load(X + i, mask=i < n{{}})\n{DECISIONS[word]}"
    (sentence, *_) = said(body.format(""), ones(16), ones(16))
    assert re.search(
        rf":\d+: program 0 {word.strip()} by a number of a lane that a mask left without a value",
        sentence,
    )
    assert said(body.format(", other=0.0"), ones(16), ones(16)) == []


MASKS = {
    "and": ("(i < n) & (flag > 0)", True),
    "and, turned round": ("(flag > 0) & (i < n)", True),
    "or": ("(i >= n) | (flag > 0)", True),
    "the wrong way round": ("(i >= n) & (flag > 0)", False),
    "or, the wrong way round": ("(i < n) | (flag > 0)", False),
    "the flag alone": ("flag > 0", False),
    "not": ("flag <= 0", False),
    "chosen": ("tl.where(i < n, flag > 0, False)", True),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_known_where_one_side_of_it_decides(name):
    mask, clean = MASKS[name]
    body = (
        f"i = tl.arange(0, N)\nflag = tl.load(X + i, mask=i < n)\ntl.store(O + i, 1.0, mask={mask})"
    )
    sentences = said(body, ones(16), ones(16))
    assert (sentences == []) is clean
    assert all("the mask comes from a lane" in sentence for sentence in sentences)


def test_what_is_wholly_outside_is_told_and_left_out():
    body = "i = tl.arange(0, N)\nx = tl.load(X + i + 100)\ntl.store(O + i + 100, x)"
    assert len(said(body, ones(16), ones(16))) == 2


ROWS = """
r, c = tl.arange(0, 4)[:, None], tl.arange(0, 4)[None, :]
x = tl.load(X + r * 4 + c, mask=r < n)
tl.store(O + tl.arange(0, 4), {}, mask=tl.arange(0, 4) < n)
"""


@pytest.mark.parametrize(
    "result",
    [
        "tl.sum(x, 1)",
        "tl.max(x, 1)",
        "tl.argmax(x, 1)",
        "tl.sum(x, 1, keep_dims=True).reshape([4])",
    ],
)
def test_rows_without_values_leave_the_sums_of_other_rows_alone(result):
    assert said(ROWS.format(result), ones(16), ones(4), n=2) == []
    down = result.replace("1)", "0)").replace("1,", "0,")
    assert len(said(ROWS.format(down), ones(16), ones(4), n=2)) == 1


PRODUCT = """
r, c = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
a = tl.load(X + r * 16 + c, mask={a})
b = tl.load(Y + r * 16 + c, mask={b})
tl.store(O + r * 16 + c, tl.dot(a, b), mask=(r < n) & (c < n))
"""


@pytest.mark.parametrize(
    ("a", "b", "clean"),
    [("r < n", "c < n", True), ("c < n", "c < n", False), ("r < n", "r < n", False)],
)
def test_a_product_has_no_value_where_its_row_or_column_has_none(a, b, clean):
    found = said(PRODUCT.format(a=a, b=b), ones(16, 16), ones(16, 16), ones(16, 16))
    assert (found == []) is clean


def test_a_masked_atomic_gives_nothing_to_the_lanes_that_it_leaves_out():
    body = "i = tl.arange(0, N)\nold = tl.atomic_add(X + i, 1.0, mask=i < n)\ntl.store(O + i, old, mask=i < {})"
    assert said(body.format("n"), ones(16), ones(16)) == []
    assert "O[10]" in said(body.format("n + 1"), ones(16), ones(16))[0]


# Outside
# ------------------------------------------------------------------------------------------------

MATRIX = """
r, c = tl.arange(0, 4)[:, None], tl.arange(0, 16)[None, :]
x = tl.load(X + r * 20 + c, mask=c < {reads}, other=0.0)
tl.store(O + r * {stride} + c, x, mask=c < {writes})
"""


def test_between_the_rows_of_a_padded_matrix_is_outside():
    memory = ones(4, 20)
    inside = memory[:, :10]
    right = MATRIX.format(reads="n", writes="n", stride=10)
    assert said(right, inside, ones(4, 10)) == []

    (sentence, *_) = said(right.replace("c < n, o", "c <= n, o"), inside, ones(4, 10))
    assert sentence.endswith(
        "reads X[0, 10], outside: the shape of X is (4, 10), and other memory lies between"
    )
    wrong = MATRIX.format(reads="n", writes="n + 1", stride=20)
    (sentence, *_) = said(wrong, ones(4, 20), inside)
    assert re.search("lane .0, 10. writes O.0, 10., outside: the shape of O is .4, 10.", sentence)


VIEWS = {
    "a column": (lambda m: m[:, 3], lambda r, c: c == 0, 20),
    "every other column": (lambda m: m[:, ::2], None, 20),
    "a block in the middle": (lambda m: m[2:5, 4:9], None, 20),
    "transposed": (lambda m: m[:, :10].t(), None, 20),
    "a dimension of one": (lambda m: m[:1, :7], None, 20),
    "expanded": (lambda m: m[0, :10].expand(4, 10), None, 20),
    "windows that overlap": (lambda m: m.view(-1).as_strided((5, 8), (4, 1)), None, 20),
}


@pytest.mark.parametrize("name", VIEWS)
def test_each_element_of_a_view_is_inside(name):
    """And its neighbours in memory are, if and only if they belong to the view."""
    from course_lib.simulator.watching import Region

    memory = torch.arange(100.0).view(5, 20)
    view = VIEWS[name][0](memory)
    region = Region("x", view)
    addresses = torch.arange(100).numpy().astype("uint64") * 4 + memory.data_ptr()
    mine = {int(number) for number in view.reshape(-1)}
    inside = {int(n) for n in region.contains(addresses, 4).nonzero()[0]}
    if "overlap" in name:
        assert mine <= inside
    else:
        assert inside == mine


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (2, 3), (2, 1, 3), (3,)])
def test_an_address_is_named_by_the_index_that_the_tensor_takes(shape):
    from course_lib.simulator.watching import Region

    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    region = Region("x", tensor)
    for number in range(tensor.numel()):
        name = region.at(tensor.data_ptr() + 4 * number)
        assert eval(name, {"x": tensor}).item() == number


@pytest.mark.skipif(
    versions.minor(version("triton")) >= (3, 9), reason="Triton 3.9 has no block pointers"
)
def test_a_block_pointer_without_a_boundary_check_is_named_by_its_tensor():
    body = (
        "p = tl.make_block_ptr(X, shape=(n,), strides=(1,), offsets=(0,), block_shape=(N,), order=(0,))\n"
        "x = tl.load(p{})\ntl.store(O + tl.arange(0, N), x)"
    )
    padded = body.format(", boundary_check=(0,), padding_option='zero'")
    assert said(padded, ones(32)[:10], ones(16)) == []
    (sentence, *_) = said(body.format(""), ones(32)[:10], ones(16))
    assert sentence.endswith("lane 10 reads X[10], outside: X ends at X[9]")


# Offsets, and the form of a sentence
# ------------------------------------------------------------------------------------------------

BEYOND = {
    "product": "X + i * 70000 * 40000",
    "widened too late": "X + (i * 70000 * 40000).to(tl.int64)",
    "moved": "X + tl.reshape(tl.reshape(i * 70000 * 40000, [4, 4]), [16])",
    "chosen": "X + tl.where(i > 3, i * 70000 * 40000, 0)",
}


@pytest.mark.parametrize("name", BEYOND)
def test_an_offset_beyond_int32_is_told_with_its_place(name):
    body = f"i = tl.arange(0, N)\nx = tl.load({BEYOND[name]}, mask=i > 8, other=0.0)\ntl.store(O + i, x)"
    sentences = said(body, ones(16), ones(16))
    (sentence,) = [s for s in sentences if "beyond int32" in s]
    assert re.match(PLACE, sentence)


def test_a_hash_that_wraps_on_purpose_is_no_offset_beyond_int32():
    body = "i = tl.arange(0, N)\nplace = (i * 1000003 * 7919) & 15\ntl.store(O + i, tl.load(X + place))"
    assert said(body, ones(16), ones(16)) == []


FORMS = {
    "outside": "tl.store(O + i + 7, x)",
    "before": "tl.store(O + i - 1, x)",
    "no value": "tl.store(O + i, tl.load(X + i, mask=i < n))",
    "no place": "tl.store(O + tl.load(X + i, mask=i < n).to(tl.int32) * 0, 1.0)",
    "no mask": "tl.store(O + i, x, mask=tl.load(X + i, mask=i < n) > 0)",
    "atomic": "tl.atomic_add(O + i + 7, x)",
    "two dimensions": "tl.store(O + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], 1.0)",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_sentence_has_line_program_lane_and_place(name):
    body = f"i = tl.arange(0, N)\nx = tl.load(X + i)\n{FORMS[name]}"
    (sentence, *_) = said(body, ones(16), ones(4, 4))
    assert re.match(PLACE, sentence), sentence
    assert ":5: " in sentence and "\n" not in sentence


# Large tiles
# ------------------------------------------------------------------------------------------------


def test_addresses_that_are_in_no_order_and_come_once_are_no_race():
    transposed = "i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]\ntl.store(O + j * N + i, tl.load(X + i * N + j))"
    x, out = torch.arange(256.0).view(16, 16), torch.zeros(16, 16)
    assert said(transposed, x, out) == []
    assert torch.equal(out, x.t())
    both = transposed.replace("O + j * N + i", "O + i + j")
    assert "a race at O[0, 1]" in said(both, x, out)[0]
