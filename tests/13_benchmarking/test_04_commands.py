"""`course bench` from its arguments to its exit status, on small sizes."""

from __future__ import annotations

import gc
import json
import types

import pytest
import torch
from torch import fx

import course_lib
from course_lib import runtime
from course_lib.bench import command_line, compare, first_call, leaks, main, models, peak
from course_lib.bench.first_call import FirstCall

SMALL = [
    "--batch",
    "2",
    "--seq",
    "8",
    "--hidden",
    "32",
    "--iters",
    "3",
    "--warmup",
    "1",
    "--min-time",
    "0",
]
OURS = [*SMALL, "--device", "cpu", "--no-torch-compile"]


def say(change):
    """A contender named course_lib that is `change(function)`."""

    def watch(run):
        run()
        return compare.Program(1, 0, 3, 2, 0)

    return lambda *args: compare.Contender("course_lib", change, watch)


def test_tinyblock_is_one_graph_with_three_kernels_and_two_library_calls(capsys):
    assert main(["tinyblock", *OURS, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    program = told["results"][1]["program"]
    assert program["fallbacks"] == []
    assert (program["graphs"], program["breaks"], program["recompiles"]) == (1, 0, 0)
    assert program["library_calls"] == 2 and program["kernels"] <= 3
    assert told["results"][1]["max_abs_diff"] < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tinyblock_is_right_in_each_dtype(dtype):
    assert main(["tinyblock", *OURS, "--dtype", dtype]) == 0


def test_memory_stays_flat(capsys):
    assert (
        main(["memory", "--compiles", "40", "--calls", "400", "--backend", "eager", "--json", "-"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    objects = [reading["objects"] for reading in told["calls"]]
    assert abs(objects[-1] - objects[1]) < 20
    assert [reading["done"] for reading in told["compiles"]] == list(range(4, 41, 4))


def test_the_peak_of_a_step_is_what_it_holds_at_its_height():
    kept = []

    def step():
        kept.append(torch.ones(8 * 2**20))  # 32 MB
        kept.clear()

    assert 30 < peak.peak(step, "cpu") < 40


@pytest.mark.slow
def test_the_peak_of_training_is_measured_in_fresh_processes(capsys, monkeypatch):
    monkeypatch.setattr(models, "TRAINED", {"TinyBlock 32x128x768": None})
    assert main(["peak", "--device", "cpu", "--no-torch-compile", "--json", "-"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["megabytes"].values()
    assert 100 < found["course_lib"] < 1.3 * found["eager"]


def test_a_leak_is_counted():
    drawer = []
    seen = list(leaks.readings(lambda n: drawer.append([n, []]), 1000))
    assert 1.9 < leaks.gained(seen)[1] < 2.1
    assert len(drawer) == 1000


def test_a_compile_whose_function_is_dropped_leaves_nothing_behind():
    seen = list(leaks.compiles(80, "inductor"))
    assert leaks.gained(seen)[1] < 0.5


def test_a_graph_with_symbolic_sizes_leaves_no_source_text_behind():
    texts = fx.graph_module._loader.eval_cache

    def sizes():
        compiled = course_lib.compile(
            lambda x: (x * 2).sum() + x.shape[0], dynamic=True, backend="aot_eager"
        )
        for n in (3, 4, 5):
            assert compiled(torch.ones(n)) == 3 * n

    before = None
    for _ in range(3):
        sizes()
        course_lib.reset()
        gc.collect()
        before = len(texts) if before is None else before
    assert len(texts) <= before


def test_what_runs_op_by_op_is_told_and_counts_no_kernels():
    def missing(*args, **kwargs):
        raise runtime.BackendMissing("no C++ compiler found")

    pipeline = course_lib.Pipeline().replace(build=missing)
    model = models.TinyBlock(8, expansion=2)
    compiled = course_lib.compile(model, pipeline=pipeline)
    with torch.inference_mode(), pytest.warns(UserWarning, match=r"no C\+\+ compiler"):
        program = compare.watch_ours(lambda: compiled(torch.randn(2, 3, 8)))
    assert (program.graphs, program.kernels, program.library_calls) == (1, 0, 0)
    assert program.fallbacks == ["the graph runs operation by operation: no C++ compiler found"]


def test_training_runs_and_checks_its_gradients():
    assert main(["tinyblock", *OURS, "--train"]) == 0


@pytest.mark.slow
def test_torch_compile_stands_beside_ours(capsys):
    assert main(["tinyblock", *SMALL, "--device", "cpu", "--mode", "default", "--fullgraph"]) == 0
    out = capsys.readouterr().out
    assert "torch.compile: 1 graph, no graph breaks, 3 kernels, 2 library calls" in out


def test_the_output_names_the_machine_the_shape_and_the_row(capsys, monkeypatch):
    monkeypatch.setattr(compare, "ours", say(lambda function: function))
    assert main(["tinyblock", *OURS]) == 0
    out = capsys.readouterr().out
    assert "shape=(2, 8, 32)" in out and "dtype=torch.float32 mode=default" in out
    assert f"torch {torch.__version__}" in out
    assert "| Environment | mode | shape | eager | compile | speedup | notes |" in out
    assert "/ float32 | default | 2 × 8 × 32 |" in out


def test_json_on_standard_output_is_nothing_but_json(capsys, monkeypatch):
    monkeypatch.setattr(compare, "ours", say(lambda function: function))
    assert main(["tinyblock", *OURS, "--json", "-"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert {"benchmark", "date", "machine", "versions", "arguments", "shape", "results"} <= set(
        told
    )
    assert {"cpu", "cores", "gpu"} <= set(told["machine"]) and {
        "python",
        "torch",
        "course_lib",
    } <= set(told["versions"])
    assert told["arguments"]["iters"] == 3 and [
        len(result["samples"]) for result in told["results"]
    ] == [3, 3]
    assert "vs eager" in captured.err


def test_a_wrong_result_is_exit_status_1(capsys, monkeypatch):
    monkeypatch.setattr(compare, "ours", say(lambda function: lambda x: function(x) + 0.01))
    assert main(["tinyblock", *OURS]) == 1
    assert "wrong result: differs from eager by up to 1.0e-02" in capsys.readouterr().out


def test_a_failure_of_ours_is_exit_status_1_and_of_torch_compile_0(capsys, monkeypatch):
    def broken(function):
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(compare, "ours", say(broken))
    assert main(["tinyblock", *OURS]) == 1
    fine = say(lambda function: function)
    monkeypatch.setattr(compare, "ours", fine)
    theirs = compare.Contender("torch.compile", broken, compare.watch_nothing)
    monkeypatch.setattr(compare, "theirs", lambda *args: theirs)
    assert main(["tinyblock", *SMALL, "--device", "cpu"]) == 0
    assert "torch.compile: RuntimeError: no compiler here" in capsys.readouterr().out


def test_overhead_and_kernels_print_a_table_each(capsys, monkeypatch):
    monkeypatch.setattr(compare, "ours", say(lambda function: function))
    quick = [
        "--iters",
        "2",
        "--warmup",
        "1",
        "--min-time",
        "0",
        "--device",
        "cpu",
        "--no-torch-compile",
    ]
    assert main(["overhead", *quick]) == 0
    assert "x * 2 + y on 4 elements" in capsys.readouterr().out
    assert main(["kernels", "softmax", *quick, "--rows", "4"]) == 0
    assert "softmax((4, 1024),)" in capsys.readouterr().out
    assert main(["kernels", "sofmax", *quick]) == 2
    assert "there is no function 'sofmax'; there are pointwise_chain" in capsys.readouterr().err


def test_a_missing_gpu_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["tinyblock", "--device", "cuda"]) == 2
    assert "can use no GPU here" in capsys.readouterr().err


def test_the_matmul_precision_is_the_texts_and_is_put_back(monkeypatch):
    seen = []
    monkeypatch.setattr(
        compare,
        "ours",
        say(lambda function: seen.append(torch.get_float32_matmul_precision()) or function),
    )
    before = torch.get_float32_matmul_precision()
    main(["tinyblock", *OURS])
    assert seen == ["high"] and torch.get_float32_matmul_precision() == before


def arguments(**changes):
    told = {"mode": "default", "dynamic": False, "fullgraph": False}
    return types.SimpleNamespace(**{**told, "device": "cpu", "dtype": torch.float32, **changes})


@pytest.mark.parametrize("workload", [first_call.SMALL, "transformer, training"])
def test_the_first_call_is_measured_in_a_process_of_its_own(workload, tmp_path):
    found = first_call.measure("course_lib", workload, arguments(), tmp_path)
    assert found.problem == "" and found.max_abs_diff < 1e-3
    assert found.compile_and_call > found.second_call > 0
    assert any(tmp_path.rglob("*.so"))


def test_each_situation_begins_with_what_is_on_disk_then(monkeypatch):
    seen = []

    def measure(who, workload, args, caches):
        seen.append(
            (who, workload, caches.name, frozenset(w for _, w, at, _ in seen if at == caches.name))
        )
        return FirstCall(0.5, 0.5)

    monkeypatch.setattr(first_call, "measure", measure)
    rows = list(first_call.situations(["softmax", "LayerNorm"], ["course_lib"], arguments()))
    assert [situation for _, situation, _, _ in rows] == [*first_call.SITUATIONS] * 2
    small, softmax = frozenset([first_call.SMALL]), frozenset([first_call.SMALL, "softmax"])
    there = [on_disk for _, workload, _, on_disk in seen if workload == "LayerNorm"]
    assert there == [frozenset(), softmax, softmax | {"LayerNorm"}]
    assert [on_disk for _, workload, _, on_disk in seen if workload == "softmax"] == [
        frozenset(),
        small,
        softmax,
    ]


def test_a_child_that_fails_is_told_with_its_last_line(tmp_path):
    found = first_call.measure("course_lib", first_call.SMALL, arguments(mode="fastest"), tmp_path)
    assert "there is no mode 'fastest'" in found.problem


def test_ratios_of_first_calls_count_imports_and_their_mean_is_geometric():
    ours, empty = FirstCall(0.5, 0.5), first_call.SITUATIONS[0]
    runs = {
        ("softmax", empty): {"course_lib": ours, "torch.compile": FirstCall(0.0, 2.0)},
        ("LayerNorm", empty): {"course_lib": ours, "torch.compile": FirstCall(0.0, 8.0)},
        ("TinyBlock", empty): {
            "course_lib": ours,
            "torch.compile": FirstCall(problem="ImportError: triton"),
        },
    }
    text = first_call.table(runs)
    assert "nothing on disk: torch.compile takes 4.0 times as long (geometric mean of 2)" in text
    assert "TinyBlock, nothing on disk: torch.compile: ImportError: triton" in text


def test_the_command_tells_each_first_call_and_refuses_what_it_does_not_know(capsys, monkeypatch):
    monkeypatch.setattr(
        first_call, "measure", lambda who, *_: FirstCall(0.0, 1.0 if who == "course_lib" else 3.0)
    )
    assert main(["compile", "softmax", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert (
        "softmax, the same before, torch.compile: 3.00 s" in said
        and "takes 3.0 times as long" in said
    )
    assert main(["compile", "sofmax", "--device", "cpu"]) == 2
    assert "there is no workload 'sofmax'; there are pointwise chain" in capsys.readouterr().err


def test_unknown_arguments_are_refused():
    with pytest.raises(SystemExit):
        main(["tinyblock", "--iters", "0"])
    with pytest.raises(SystemExit):
        command_line.main(["tinyblok"])
