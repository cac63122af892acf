"""Python's and torch's own code runs natively: it meets real objects, never stand-ins whose attributes are not there.

And what the program wrote itself (`__eq__`, hooks) runs as often as in eager."""

import collections
import contextlib
import copy
import dataclasses
import operator
import threading
import weakref
from weakref import WeakKeyDictionary, WeakMethod, WeakSet, WeakValueDictionary

import pytest
import torch
from same_as_eager import Cases
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._sympy.value_ranges import ValueRanges
from torch.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary


class Item:
    def __init__(self, number):
        self.number = number

    def method(self):
        return self.number + 4


class Hashed(Item):
    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        return self.number == other.number


class OwnSet(WeakSet):
    def and_one(self):
        return len(self) + 1


class Holder:
    def __init__(self):
        self.set, self.number = WeakSet([first]), 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x):
        return self.linear(x).relu()


first, second, hashed = Item(1), Item(2), Hashed(3)
items, by_hash = WeakSet([first, second]), WeakSet([hashed])
own_set, holder, method = OwnSet([first]), Holder(), WeakMethod(first.method)
by_key, by_own_key = WeakKeyDictionary({first: 1, second: 2}), WeakKeyDictionary({hashed: 4})
by_value, by_id = WeakValueDictionary({"a": first, "b": second}), WeakIdKeyDictionary()
by_id[first] = 3
tensor, other_tensor, by_tensor = torch.ones(1), torch.ones(1), WeakTensorKeyDictionary()
by_tensor[tensor] = 2
tensor_ref, finalizer, proxy = (
    TensorWeakRef(tensor),
    weakref.finalize(first, print),
    weakref.proxy(first),
)
traced = torch.fx.symbolic_trace(Net())
graph, node = traced.graph, next(iter(traced.graph.nodes))
interpreter, values = torch.fx.Interpreter(traced), ValueRanges(1, 5)

NUMBERS = {
    "len of a set": lambda: len(items),
    "truth of a set": lambda: 1 if items else 2,
    "in a set": lambda: 1 if first in items else 2,
    "in a set, by an own hash": lambda: 1 if Hashed(3) in by_hash else 2,
    "over a set": lambda: sum(item.number for item in items),
    "union": lambda: len(items | WeakSet([hashed])),
    "equal sets": lambda: int(items == WeakSet([first, second])),
    "subset": lambda: int(items.issubset(WeakSet([first, second]))),
    "copy of a set": lambda: len(items.copy()),
    "list of a set": lambda: len([*items]) + len(list(items)) + len(set(items)),
    "sorted set": lambda: sorted(items, key=lambda item: item.number)[0].number,
    "length hint": lambda: operator.length_hint(items),
    "a set that is made": lambda: len(WeakSet([first, second])),
    "own subclass": lambda: own_set.and_one() + len(own_set),
    "a set in an object": lambda: len(holder.set) + holder.number,
    "item by key": lambda: by_key[first],
    "get by key": lambda: by_key.get(second, 9),
    "len by key": lambda: len(by_key),
    "items by key": lambda: sum(number for _, number in by_key.items()),
    "item by own key": lambda: by_own_key[hashed],
    "in by key": lambda: int(first in by_key),
    "item by value": lambda: by_value["a"].number,
    "get by value": lambda: by_value.get("none", Item(8)).number,
    "values": lambda: sum(item.number for item in by_value.values()),
    "dict of values": lambda: len(dict(by_value)),
    "weak method": lambda: method()(),
    "item by tensor": lambda: by_tensor[tensor],
    "in by tensor": lambda: int(tensor in by_tensor),
    "not in by tensor": lambda: int(other_tensor in by_tensor),
    "get by tensor": lambda: by_tensor.get(other_tensor, 7),
    "len by tensor": lambda: len(by_tensor),
    "item by id": lambda: by_id[first],
    "tensor reference": lambda: tensor_ref().item(),
    "finalizer": lambda: int(finalizer.alive),
    "proxy": lambda: proxy.number,
    "nodes": lambda: len(list(graph.nodes)) + len(graph.nodes),
    "nodes of a module": lambda: len(list(traced.graph.nodes)),
    "name of a node": lambda: len(node.name) + len(node.op) + len(node.users),
    "next node": lambda: len(node.next.name),
    "order of nodes": lambda: int(node < node.next) + int(node == node),
    "text of a node": lambda: len(format(node)) + len(str(node)),
    "text of a graph": lambda: len(str(graph)),
    "code of a module": lambda: min(len(traced.code), 1),
    "find nodes": lambda: len(graph.find_nodes(op="placeholder")),
    "copy of a graph": lambda: len(copy.deepcopy(graph).nodes),
    "lint": lambda: int(graph.lint() is None),
    "run of a graph": lambda: interpreter.run(torch.ones(1, 1)).sum(),
    "call of a graph": lambda: traced(torch.ones(1, 1)).sum(),
    "part of a traced module": lambda: traced.linear.in_features,
    "sympy": lambda: int(values.upper) + int(3 in values),
    "added to a set": lambda: (items.add(hashed), len(items))[1],
    "taken from a set": lambda: (items.discard(second), len(items))[1],
    "stored by key": lambda: (by_key.__setitem__(hashed, 9), len(by_key))[1],
    "stored by tensor": lambda: (by_tensor.__setitem__(other_tensor, 9), len(by_tensor))[1],
}
lock = threading.Lock()


def in_a_try(number):
    def function(x):
        try:
            found = number()
        except (AttributeError, TypeError, KeyError):
            found = 100
        return x + found

    return function


def in_a_with(number):
    def function(x):
        with torch.no_grad():
            return x + number()

    return function


def behind_a_lock(number):
    def function(x):
        with lock:
            found = number()
        return x + found

    return function


def suppressing(number):
    def function(x):
        found = 100
        with contextlib.suppress(AttributeError):
            found = number()
        return x + found

    return function


def twice(function):
    def body(compile):
        items.add(second)
        items.discard(hashed)
        by_key.pop(hashed, None)
        by_tensor.pop(other_tensor, None)
        fast = compile(function)
        results = [fast(torch.zeros(1)) for _ in range(2)]
        return results, len(items), len(by_key), len(by_tensor)

    return body


natives = Cases(backend="eager")
for name, number in NUMBERS.items():
    for place in (in_a_try, in_a_with, behind_a_lock, suppressing):
        natives(f"{name}, {place.__name__}", twice(place(number)))


@pytest.mark.parametrize("name", natives.names)
def test_native_code_meets_the_real_object(name):
    natives.check(name)


# ---- the program's own methods run as often as in eager --------------------------------------------------------------


class Key:
    def __init__(self, number):
        self.number, self.compared, self.hashed = number, 0, 0

    def __eq__(self, other):
        self.compared += 1
        return isinstance(other, Key) and self.number == other.number

    def __hash__(self):
        self.hashed += 1
        return 7


@dataclasses.dataclass(frozen=True)
class Plain:
    number: int = 1


def counts(x, keys, known):
    for key in keys:
        known[key] = known.get(key, 0) + 1
    return x + len(known)


def sets_defaults(x, keys, known):
    for key in keys:
        known.setdefault(key, 0)
    return x + len(known)


def updates(x, keys, known):
    known.update(dict.fromkeys(keys, 1))
    return x + len(known)


def pairs(x, keys, known):
    known[keys[0], 1] = 1
    known[keys[2], 1] = 2
    return x + len(known)


def deletes(x, keys, known):
    known[keys[0]] = 1
    del known[keys[2]]
    return x + len(known)


def breaks(x, keys, known):
    known[keys[0]] = 1
    print(end="")
    known[keys[2]] = 2
    return x + len(known)


def nests(x, keys, known):
    known["inner"] = {keys[0]: 1}
    return x + len(known)


def returns_a_dict(x, keys, known):
    known["result"] = x + 1
    return len(dict.fromkeys(keys, 1)), dict.fromkeys(keys, 1)


def returns_a_set(x, keys, known):
    known["result"] = x + 1
    return set(keys), frozenset(keys)


def only_local(x, keys, known):
    return x + len(dict.fromkeys(keys, 1)) + keys.index(keys[2])


def compares(function, make=dict):
    def body(compile):
        keys, known = [Key(1), Key(2), Key(1)], make()
        fast = compile(lambda x: function(x, keys, known))
        sizes = []
        for _ in range(2):
            result = fast(torch.ones(2))
            sizes += [len(part) for part in result if not isinstance(part, (int, torch.Tensor))]
        return sizes, [(key.compared, key.hashed) for key in keys], len(known)

    return body


def unpacks(compile):
    class Counting:
        asked = 0

        def __len__(self):
            self.asked += 1
            return 2

        def __iter__(self):
            return iter((1, 2))

    value = Counting()
    return compile(lambda x: x + [*value][0])(torch.ones(1)), value.asked  # noqa: RUF015


def keys_of_a_dataclass(compile):
    known = {}

    def function(x):
        known[Plain()] = 1
        return x + 1

    compile(function)(torch.ones(2))
    return len(known)


methods = Cases(backend="eager")
for function in (
    counts,
    sets_defaults,
    updates,
    pairs,
    deletes,
    breaks,
    nests,
    returns_a_dict,
    returns_a_set,
    only_local,
):
    methods(function.__name__, compares(function))
methods("counts in order", compares(counts, collections.OrderedDict))
methods("unpacks", unpacks)
methods("keys of a dataclass", keys_of_a_dataclass)


@pytest.mark.parametrize("name", methods.names)
def test_own_methods_run_as_often_as_in_eager(name):
    methods.check(name)


# ---- forward hooks with always_call ----------------------------------------------------------------------------------


class Fails(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.calls = how, 0

    def forward(self, x, factor=1):
        self.calls += 1
        if self.how == "always" or (self.how == "every second time" and self.calls % 2 == 0):
            raise ValueError("no")
        return x * 2 * factor


def hooked(how, *hooks, everywhere=()):
    """`hooks`: their names, and the options that they are registered with; `everywhere`: of hooks for all modules."""

    def body(compile):
        log, model = [], Fails(how)

        def hook_of(name):
            def hook(*args):
                log.append((name, len(args), type(args[-1]).__name__))
                if name == "raises":
                    raise ZeroDivisionError("hook")
                return args[-1] * 10 if name == "changes" and args[-1] is not None else None

            return hook

        handles = [model.register_forward_hook(hook_of(n), **options) for n, options in hooks]
        handles += [
            register_module_forward_hook(hook_of(name), **options) for name, options in everywhere
        ]

        def function(x):
            try:
                return model(x, factor=3)
            except (ValueError, ZeroDivisionError) as error:
                log.append(type(error).__name__)
                return x + 1

        fast = compile(function)
        results = [fast(torch.ones(2)) for _ in range(3)]
        for handle in handles:
            handle.remove()
        return results, fast(torch.ones(2)), log, model.calls

    return body


ALWAYS = {"always_call": True}
HOOKS = {
    "one": [("a", ALWAYS)],
    "an ordinary one": [("a", {})],
    "both": [("a", {}), ("b", ALWAYS)],
    "two": [("a", ALWAYS), ("b", ALWAYS)],
    "with keywords": [("a", ALWAYS | {"with_kwargs": True})],
    "before the others": [("a", {}), ("b", ALWAYS | {"prepend": True})],
    "one that changes the result": [("changes", ALWAYS)],
    "behind one that raises": [("raises", {}), ("b", ALWAYS)],
}
hooks = Cases(backend="eager")
for how in ("never", "always", "every second time"):
    for name, registered in HOOKS.items():
        hooks(f"{name}, forward fails {how}", hooked(how, *registered))
    hooks(f"for all modules, forward fails {how}", hooked(how, everywhere=[("a", ALWAYS)]))


@pytest.mark.parametrize("name", hooks.names)
def test_a_hook_with_always_call_runs_when_forward_raises(name):
    hooks.check(name)
