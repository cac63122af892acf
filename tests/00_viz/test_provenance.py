"""From the user's line to the line of a kernel, and back: on real models, end to end."""

from __future__ import annotations

import re

import pytest
import torch

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.viz.explorer.provenance import PANES, Provenance


def provenance_of(function, *calls, train=False, **options):
    compiled = cl.compile(function, **options)
    with torch.set_grad_enabled(train), cl.record() as trace:
        for call in calls:
            compiled(*call)
    return Provenance(trace)


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(0)
    return provenance_of(TinyBlock(64, 2), [torch.randn(2, 4, 64)], train=True)


@pytest.fixture(scope="module")
def six_layers(transformer):
    return Provenance(transformer)


def lit(provenance, row, pane):
    """What of a pane belongs to a row: labels of lines, else names."""
    found = [
        one
        for one in provenance.rows[pane]
        if one in provenance.related(row) and one.kind != "head"
    ]
    return [one.label if pane in ("source", "code") else one.text.split(" = ")[0] for one in found]


@pytest.mark.parametrize("model", ["tiny", "six_layers"])
def test_every_row_of_every_stage_has_an_origin(model, request):
    provenance = request.getfixturevalue(model)
    for pane in ("bytecode", "fx", "aten", "loops", "groups"):
        loose = [
            row.text
            for row in provenance.rows[pane]
            if not row.up and row.kind not in ("head", "output")
        ]
        assert loose == ["tangent_0"] * (pane == "aten"), (
            f"{PANES[pane].title}: these came from nowhere"
        )
    kernels = [row for row in provenance.rows["code"] if "program" not in row.text]
    program = [row for row in kernels if not row.up and not row.of]
    assert {re.split(r"\W", row.text.strip())[0] for row in program if row.kind != "head"} <= {
        "def", "del", "return", *re.findall(r"\b\w+_view\d*\b", "\n".join(row.text for row in program)),
    }  # fmt: skip


@pytest.mark.parametrize("model", ["tiny", "six_layers"])
def test_a_line_of_a_kernel_leads_to_the_line_that_its_own_comment_names(model, request):
    provenance, seen = request.getfixturevalue(model), 0
    for row in provenance.rows["code"]:
        if named := re.search(r"// \S+ \(models\.py:(\d+)\)", row.text):
            assert named[1] in lit(provenance, row, "source"), row.text
            seen += 1
    assert seen > 20


@pytest.mark.parametrize("model", ["tiny", "six_layers"])
def test_every_line_of_every_kernel_of_a_training_step_has_all_stages_above_it_and_is_found_from_each(
    model, request
):
    """Kernel line → group → loop → ATen node → FX node → instruction → the user's line, and back; in forward and in backward."""
    provenance = request.getfixturevalue(model)
    backward = {row for row in provenance.rows["aten"] if row.kind == "backward"}
    lines = [
        row for row in provenance.rows["code"] if re.search(r"// \S+ \(models\.py:\d+\)", row.text)
    ]
    from_backward = 0
    for line in lines:
        related = provenance.related(line)
        for pane in ("groups", "loops", "aten", "fx", "bytecode", "source"):
            above = [
                row
                for row in related
                if row.pane == pane and row.kind not in ("head", "group", "library")
            ]
            assert above, f"{line.text.strip()!r} has nothing in {PANES[pane].title}"
            assert all(line in provenance.related(row) for row in above if row.of is None), (
                line.text,
                pane,
            )
        from_backward += bool(backward.intersection(related))
    assert len(lines) > 20 and 0 < from_backward < len(lines)


@pytest.mark.parametrize("model", ["tiny", "six_layers"])
def test_what_is_lit_from_one_end_is_lit_from_the_other(model, request):
    provenance = request.getfixturevalue(model)
    single = [
        row for row in provenance if row.kind not in ("head", "group", "library") and row.of is None
    ]
    for row in single[:: max(1, len(single) // 60)]:
        for other in provenance.related(row):
            if other.kind not in ("head", "group", "library") and other.of is None:
                assert row in provenance.related(other), (row, other)


def test_gelu_through_all_stages_forward_and_backward(tiny):
    line = tiny.find("source", "gelu(x)")
    assert lit(tiny, line, "fx") == ["gelu"]
    assert lit(tiny, line, "aten")[0] == "gelu" and "erf" in lit(tiny, line, "aten")
    kernels = [
        row.text for row in tiny.rows["groups"] if row.kind == "group" and row in tiny.related(line)
    ]
    assert kernels == ["fused_gelu_mul_add", "fused_gelu_mul_add_erf_exp"], (
        "one of forward, one of backward"
    )
    assert any("0.5f" in row.text for row in tiny.related(line) if row.pane == "code")
    node = next(row for row in tiny.rows["fx"] if row.text.startswith("gelu = "))
    assert [row.text for row in tiny.rows["bytecode"] if row in tiny.related(node)] == ["CALL 1"]


def test_a_call_that_was_followed_belongs_to_the_line_that_makes_it(tiny):
    assert lit(tiny, tiny.find("source", "self.ln(x)"), "fx") == [
        "x",
        "self.ln.weight",
        "self.ln.bias",
        "layer_norm",
    ]
    node = next(row for row in tiny.rows["fx"] if row.text.startswith("layer_norm = "))
    lines = [row.text.strip() for row in tiny.rows["source"] if row in tiny.related(node)]
    assert lines == ["x = self.ln(x)", "return F.layer_norm("]


def test_a_line_of_a_model_with_six_equal_layers_belongs_to_all_six(six_layers):
    line = six_layers.find("source", "self.qkv(x)")
    linears = [
        row
        for row in six_layers.rows["fx"]
        if row in six_layers.related(line) and row.text.startswith("linear")
    ]
    assert len(linears) == 6
    layers = {name for row in linears for name in re.findall(r"self_layers_(\d)", row.text)}
    assert layers == set("012345")


def test_a_kernel_stands_for_all_that_it_holds(tiny):
    kernel = next(row for row in tiny.rows["groups"] if row.text == "fused_gelu_mul_add")
    assert lit(tiny, kernel, "source") == ["25", "26"]
    lines = lit(tiny, kernel, "code")
    signature = next(row for row in tiny.rows["code"] if "void fused_gelu_mul_add(" in row.text)
    assert signature in tiny.related(kernel) and tiny.related(signature) == tiny.related(kernel)
    call = next(
        row for row in tiny.rows["code"] if row.text.strip().startswith("fused_gelu_mul_add(")
    )
    assert call in tiny.related(kernel) and len(lines) > 10


def test_what_is_saved_for_backward_and_what_is_computed_again_is_said(tiny):
    notes = {row.text.split(" = ")[0]: row for row in tiny.rows["aten"]}
    assert notes["rsqrt"].kind == "saved" and notes["rsqrt"].note.endswith("saved")
    assert notes["gelu"].kind == "" and notes["gelu"].note.endswith("computed again")
    assert any(row.kind == "backward" for row in tiny.rows["aten"])


@pytest.mark.parametrize("model", ["tiny", "six_layers"])
def test_nothing_is_made_before_what_it_came_from(model, request):
    provenance = request.getfixturevalue(model)
    for row in provenance:
        assert 0 <= row.at < len(provenance.moments)
        for origin in row.up:
            if row.pane != "bytecode":  # a call is told after what it called
                assert origin.at <= row.at, (origin, row)


def several(x, rows):
    a, b = x.chunk(2)
    total = sum([a, b, a])
    for row in total:
        a = a + row
    return torch.stack([a, b]).amax(0) + rows[0]


def test_an_instruction_may_make_many_nodes():
    provenance = provenance_of(several, [torch.randn(4, 3), [torch.randn(3)]])
    first = several.__code__.co_firstlineno
    where = {
        "chunk": 1,
        "getitem": 1,
        "getitem_1": 1,
        "add": 2,
        "add_1": 2,
        "add_2": 2,
        "unbind": 3,
        "stack": 5,
        "amax": 5,
    }
    for name, line in where.items():
        node = next(row for row in provenance.rows["fx"] if row.text.startswith(f"{name} = "))
        assert node.up[0].pane == "bytecode" and lit(provenance, node, "source") == [
            str(first + line)
        ], name


def broken(x):
    y = x * 2
    print(end="")
    return y.relu()


def test_both_graphs_around_a_break_lead_to_their_own_lines():
    provenance = provenance_of(broken, [torch.randn(3)])
    heads = [row.text for row in provenance.rows["fx"] if row.kind == "head"]
    assert len(heads) == 2
    assert lit(provenance, provenance.find("source", "y.relu()"), "fx")[-1] == "relu"
    assert lit(provenance, provenance.find("fx", "mul = "), "source") == [
        str(broken.__code__.co_firstlineno + 1)
    ]
    breaks = [row for row in provenance.rows["bytecode"] if row.kind == "break"]
    assert breaks and all(provenance.moments[row.at].stage == "break" for row in breaks)


def test_a_graph_with_symbolic_sizes_is_linked_once():
    provenance = provenance_of(
        lambda x: (x + 1).relu(), [torch.randn(4, 3)], [torch.randn(5, 3)], [torch.randn(6, 3)]
    )
    nodes = [row for row in provenance.rows["aten"] if row.text.startswith("relu = ")]
    assert len(nodes) == 2 and all(row.up and row.up[0].text.startswith("relu = ") for row in nodes)
    assert "s" in nodes[1].note, "by numbers at first, and then once for all sizes"


def test_a_loop_that_is_computed_where_it_is_read_still_leads_to_a_kernel():
    def masked(x, mask):
        return torch.softmax(x + (mask * 2).exp(), -1).sum(1)

    provenance = provenance_of(masked, [torch.randn(4, 8, 16), torch.randn(16)])
    exp = next(row for row in provenance.rows["loops"] if "exp(" in row.text)
    assert any(row.pane == "code" and "exp(" in row.text for row in provenance.related(exp))


def test_triton_kernels_are_linked_too():
    pytest.importorskip("triton")
    provenance = provenance_of(
        lambda x: torch.softmax(x * 2, -1), [torch.randn(4, 8)], options={"codegen": "triton"}
    )
    row = provenance.find("code", "tl.load")
    assert lit(provenance, row, "fx")[0] == "mul"


def test_a_backend_that_stops_early_has_no_later_stages():
    provenance = provenance_of(lambda x: x + 1, [torch.randn(3)], backend="eager")
    assert not provenance.rows["aten"] and not provenance.rows["code"]
    with pytest.raises(LookupError, match="no row of 'Loops' holds 'add'"):
        provenance.find("loops", "add")


def test_a_layer_of_torch_itself_is_followed_from_its_own_lines():
    provenance = provenance_of(torch.nn.Linear(3, 2), [torch.randn(4, 3)])
    assert [row.text for row in provenance.rows["fx"] if not row.up and row.kind == "input"] == []
    related = provenance.related(provenance.find("fx", "linear = "))
    assert any("F.linear(input" in row.text for row in related if row.pane == "source")
