"""The checks of lesson 04's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("04_guards_and_recompiles")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


ALTERNATIVES = {
    "fails": body(
        """    answers.update(dict.fromkeys(["other numbers", "OTHER = 5.0"]))
    answers["transposed"], answers["an int"], answers["GAIN = 5.0"] = "x.stride()[0]", "type(k)", "GAIN"
    answers["no grad"], answers["needs a gradient, and 4.0"] = "torch.is_grad_enabled()", "x.requires_grad"
    return {**answers, "half as many, and double": "x.dtype"}"""
    ),
    "make_check": body(
        """    names, lines = dict(HELPERS), []
    opposite = {"is": "is not", "is not": "is", "==": "!="}
    for number, guard in enumerate(guard_list):
        for place, test in enumerate(guard.tests):
            left = test.left.format("(" + guard.source.expr + ")")
            if test.op == "holds":
                lines.append(f"if not ({left}): return False")
                continue
            right = f"right_{number}_{place}"
            if isinstance(test.right, SameAs):
                right = test.right.source.expr
            else:
                names[right] = test.right
            lines.append(f"if {left} {opposite[test.op]} {right}: return False")
    lines = "\\n        ".join(lines + ["return True"])
    exec(f"def check({', '.join(['__func', *parameters])}):\\n    try:\\n        {lines}\\n    except MOVED: return False", names)
    return names["check"]"""
    ),
    "cache": body(
        "        self.checks, self.codes = [], []",
        """        index = next((i for i, fits in enumerate(self.checks) if fits(*args)), None)
        if index is not None:
            word, run = f"entry {index}", self.codes[index]
        elif len(self.codes) < self.limit:
            fits, run = self.compile(self.function, args)
            self.checks += [fits]
            self.codes += [run]
            word = "compile"
        else:
            word, run = "eager", self.function
        self.log += [word]
        return run(*args)""",
    ),
    "why": body(
        """    def parts(path, value):
        yield f"type({path})", type(value).__name__
        if isinstance(value, torch.Tensor):
            yield f"{path}.dtype", value.dtype
            yield f"{path}.ndim", value.ndim
            yield from ((f"{path}.shape[{d}]", n) for d, n in enumerate(value.shape))
            yield from ((f"{path}.stride({d})", n) for d, n in enumerate(value.stride()))
            yield f"{path}.requires_grad", value.requires_grad
        elif isinstance(value, dict):
            yield f"tuple({path})", tuple(value)
            for key, item in value.items():
                yield from parts(f"{path}[{key!r}]", item)
        elif isinstance(value, (list, tuple)):
            yield f"len({path})", len(value)
            for i, item in enumerate(value):
                yield from parts(f"{path}[{i}]", item)
        else:
            yield path, repr(value)

    def everything(args):
        for name in before:
            yield from parts(name, args[name])
        names = [name for name in before if isinstance(args[name], torch.Tensor)]
        yield from ((f"{b} is {a}", args[b] is args[a]) for j, b in enumerate(names) for a in names[:j])

    for (path, old), (_, new) in zip(everything(before), everything(after)):
        if old != new:
            return f"{path}: was {old}, is {new}"
    return "nothing that is guarded has changed\""""
    ),
}

WRONG = {
    "fails": {
        "one is missing": edit('        "no grad": "torch.is_grad_enabled()",\n', ""),
        "the numbers are guarded": edit('"other numbers": None', '"other numbers": "x.shape[0]"'),
        "the shape of what lies otherwise": edit(
            '"transposed": "x.stride()[0]"', '"transposed": "x.shape[0]"'
        ),
        "what lies otherwise is the same": edit(
            '"transposed": "x.stride()[0]"', '"transposed": None'
        ),
        "2 is 2.0": edit('"an int": "type(k)"', '"an int": "k"'),
        "the shape before the dtype": edit('double": "x.dtype"', 'double": "x.shape[0]"'),
        "arguments before switches": edit('"torch.is_grad_enabled()"', '"x.shape[1]"'),
        "a later argument": edit('"x.requires_grad"', '"k"'),
        "globals are constants": edit('"GAIN = 5.0": "GAIN"', '"GAIN = 5.0": None'),
        "every global is read": edit('"OTHER = 5.0": None', '"OTHER = 5.0": "GAIN"'),
    },
    "make_check": {
        "always": body("    return lambda func, *args: True"),
        "never": body("    return lambda func, *args: False"),
        "no types": edit(
            "        for test in guard.tests:\n",
            "        for test in guard.tests[guard.kind == 'value' :]:\n",
        ),
        "no other kinds of tensor": edit(
            "for test in guard.tests:",
            "for test in guard.tests[: 4 if guard.kind == 'tensor' else None]:",
        ),
        "no aliasing": edit(
            'conditions.append(f"{left} {test.op} {test.right.source.expr}")', "pass"
        ),
        "only what is one object": edit(
            'conditions.append(f"{left} {test.op} {test.right.source.expr}")',
            'test.op == "is" and conditions.append(f"{left} is {test.right.source.expr}")',
        ),
        "the last guard first": edit('" and ".join(conditions)', '" and ".join(conditions[::-1])'),
        "everything by ==": edit(
            'conditions.append(f"{left} {test.op} {name}")',
            'conditions.append(f"{left} == {name}")',
        ),
        "paths that raise": edit("except MOVED", "except KeyboardInterrupt"),
        "no switches": edit(
            "        for test in guard.tests:\n",
            "        for test in () if guard.kind == 'state' else guard.tests:\n",
        ),
        "globals are constants": edit(
            "        for test in guard.tests:\n",
            "        for test in () if '__globals__' in guard.source.expr else guard.tests:\n",
        ),
        "only comparisons": edit('conditions.append(f"({left})")', "pass"),
        "the library's": body("    return guards.Check(guard_list, parameters).function"),
        "keys may be anything": edit(
            "        for test in guard.tests:\n",
            "        for test in () if 'self' in parameters and 'scales' in guard.source.expr else guard.tests:\n",
        ),
        **{
            f"no guards of kind {kind}": edit(
                "        for test in guard.tests:\n",
                f"        for test in () if guard.kind == '{kind}' else guard.tests:\n",
            )
            for kind in ("class", "absent", "keys", "hooks", "type", "length")
        },
        "no closures": edit(
            "        for test in guard.tests:\n",
            "        for test in () if '__closure__' in guard.source.expr else guard.tests:\n",
        ),
        "no modules, no functions": edit(
            "        for test in guard.tests:\n",
            "        for test in () if guard.kind == 'identity' and type(guard.tests[0].right) is not SameAs else guard.tests:\n",
        ),
        "attributes that are gone": edit("except MOVED", "except AttributeError"),
        "attributes and items that are gone": edit(
            "except MOVED", "except (AttributeError, LookupError)"
        ),
        "a parameter's name": edit('f"__c{len(names)}"', 'f"c{len(names)}"'),
        "in everybody's helpers": edit("dict(HELPERS)", "HELPERS"),
    },
    "cache": {
        "one too many": edit("len(self.entries) >= self.limit", "len(self.entries) > self.limit"),
        "the old ones go": edit(
            'self.log.append("eager")', 'self.log.append("eager")\n            self.entries.clear()'
        ),
        "shared": edit(
            "        self.entries = []\n",
            "        self.entries = Cache.__dict__.get('every') or []\n        Cache.every = self.entries\n",
        ),
        "the newest first": edit(
            "in enumerate(self.entries):", "in reversed(list(enumerate(self.entries))):"
        ),
        "put in front": edit(
            "self.entries.append(self.compile(self.function, args))",
            "self.entries.insert(0, self.compile(self.function, args))",
            "self.entries[-1]",
            "self.entries[0]",
        ),
        "run, then ask": edit(
            "            if fits(*args):\n",
            "            was = [list(arg) for arg in args if type(arg) is list]\n"
            "            result = run(*args) if was and len(was[0]) == 2 and self.function is not sum else None\n"
            "            if fits(*args):\n",
        ),
        "a limit of 0 is none": edit(
            "len(self.entries) >= self.limit", "self.entries and len(self.entries) >= self.limit"
        ),
        "compiled at the limit, too": edit(
            '            self.log.append("eager")\n',
            '            self.log.append("eager")\n            self.compile(self.function, args)\n',
        ),
        "asks every entry": edit(
            "        for number, (fits, run) in enumerate(self.entries):\n            if fits(*args):",
            "        answers = [fits(*args) for fits, _ in self.entries]\n"
            "        for number, (_, run) in enumerate(self.entries):\n            if answers[number]:",
        ),
        "one argument": edit(
            "def __call__(self, *args):\n", "def __call__(self, *args):\n        args = args[:1]\n"
        ),
        "noted afterwards": edit(
            'self.log.append(f"entry {number}")\n                return run(*args)',
            'result = run(*args)\n                self.log.append(f"entry {number}")\n                return result',
        ),
        "the plain function first": edit(
            "return self.entries[-1][1](*args)", "return self.function(*args)"
        ),
    },
    "why": {
        "the whole shape": edit(
            'found(f"{path}.shape[{d}]", old.shape[d], new.shape[d])',
            'found(f"{path}.shape", old.shape, new.shape)',
        ),
        "equal is the same": edit(
            "if type(old) is not type(new):", "if type(old) is not type(new) and old != new:"
        ),
        "the numbers": edit(
            "old.requires_grad, new.requires_grad)",
            "old.requires_grad, new.requires_grad) or found(path, str(old), str(new))",
        ),
        "the last change": edit(
            "    for name in before:\n        if said",
            "    for name in reversed(before):\n        if said",
        ),
        "no strides": edit(
            'said = said or found(f"{path}.stride({d})", old.stride(d), new.stride(d))', "pass"
        ),
        "the shape first": edit(
            'said = found(f"{path}.dtype", old.dtype, new.dtype) or found(f"{path}.ndim", old.ndim, new.ndim)',
            'said = found(f"{path}.ndim", old.ndim, new.ndim)',
            'return said or found(f"{path}.requires_grad"',
            'return said or found(f"{path}.dtype", old.dtype, new.dtype) or found(f"{path}.requires_grad"',
        ),
        "== instead of repr": edit(
            "return found(path, repr(old), repr(new))", "return found(path, old, new)"
        ),
        "nan is never nan": edit(
            "return found(path, repr(old), repr(new))",
            "return found(path, repr(old), repr(new)) or (found(path, old, new) if old != old else '')",
        ),
        "not into lists": edit(
            "for key in () if said else keys:",
            "for key in () if said or isinstance(old, list) else keys:",
        ),
        "no aliasing": edit("for other in tensors[:place]:", "for other in ():"),
        "the objects first": edit(
            "    for name in before:\n        if said",
            "    for a, b in [(a, b) for b in before for a in before if a < b]:\n"
            "        if torch.is_tensor(before[a]) and (before[a] is before[b]) != (after[a] is after[b]):\n"
            '            return f"{b} is {a}: was {before[a] is before[b]}, is {after[a] is after[b]}"\n'
            "    for name in before:\n        if said",
        ),
        "the first tensor and the others": edit(
            "for other in tensors[:place]:", "for other in tensors[:1][:place]:"
        ),
        "neighbours only": edit(
            "for other in tensors[:place]:", "for other in tensors[max(place - 1, 0) : place]:"
        ),
        "lists are objects, too": edit("if isinstance(before[name], torch.Tensor)]", "]"),
        "in the order of now": edit(
            "    for name in before:\n        if said", "    for name in after:\n        if said"
        ),
        "a bool is an int": edit(
            "if type(old) is not type(new):", "if not isinstance(new, type(old)):"
        ),
        "no gradients": edit(
            'found(f"{path}.requires_grad", old.requires_grad, new.requires_grad)', '""'
        ),
        "gradients before strides": edit(
            '            for d in range(0 if said else old.ndim):\n                said = said or found(f"{path}.stride',
            '            said = said or found(f"{path}.requires_grad", old.requires_grad, new.requires_grad)\n'
            '            for d in range(0 if said else old.ndim):\n                said = said or found(f"{path}.stride',
        ),
        "a parameter is a tensor": edit(
            "if type(old) is not type(new):",
            "if type(old) is not type(new) and not (torch.is_tensor(old) and torch.is_tensor(new)):",
        ),
        "not into tuples": edit("isinstance(old, (list, tuple))", "isinstance(old, list)"),
        "no dimensions": edit(
            'found(f"{path}.ndim", old.ndim, new.ndim)',
            'found(f"{path}.shape[0]", old.shape[0], new.shape[0])',
        ),
        "keys in any order": edit(
            "tuple(old), tuple(new))", "tuple(sorted(old)), tuple(sorted(new)))"
        ),
        "items before the length": edit(
            'said = found(f"len({path})", len(old), len(new))\n            keys = range(len(old))',
            'said = "" if old[:1] != new[:1] else found(f"len({path})", len(old), len(new))\n'
            "            keys = range(min(len(old), len(new)))",
        ),
        "keys without quotes": edit('f"{path}[{key!r}]"', 'f"{path}[{key}]"'),
        "the earlier argument decides": edit(
            "    for place, name in enumerate(tensors):\n        for other in tensors[:place]:",
            "    for place, other in enumerate(tensors):\n        for name in tensors[place + 1 :]:",
        ),
        "the nearest first": edit(
            "for other in tensors[:place]:", "for other in tensors[:place][::-1]:"
        ),
        "the last size": edit(
            'for d in range(0 if said else old.ndim):\n                said = said or found(f"{path}.shape',
            'for d in reversed(range(0 if said else old.ndim)):\n                said = said or found(f"{path}.shape',
        ),
        "gradients of arguments only": edit(
            'return said or found(f"{path}.requires_grad"',
            'return said or "[" not in path and found(f"{path}.requires_grad"',
        ),
        "every key in quotes": edit(
            '[{key!r}]"', '[{key if type(old) in (list, tuple) else repr(str(key))}]"'
        ),
        "qualified names": edit(
            ".__name__}, is {type(new).__name__}", ".__qualname__}, is {type(new).__qualname__}"
        ),
        "only what was one object": edit(
            'if said := found(f"{name} is {other}", before[name] is before[other], after[name] is after[other]):',
            'if before[name] is before[other] and (said := found(f"{name} is {other}", True, after[name] is after[other])):',
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
