"""The checks of lesson 14's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("14_in_production")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


PERCENTILE = """    ordered = sorted(samples)
    for i, value in enumerate(ordered, start=1):
        if 100 * i >= p * len(ordered):
            return value"""

GATE = """    enough = len(eager) >= 1000 and len(compiled) >= 1000
    rules = {"samples": not enough}
    for p in (50, 95, 99):
        rules[f"p{p}"] = enough and percentile(compiled, p) / percentile(eager, p) > 1.05
    rules["first"] = compiled[0] / percentile(eager, 99) > 3
    rules["recompiles"], rules["memory"] = recompiles != 0, room < peak
    return [name for name, broken in rules.items() if broken]"""

HOT = (
    "        self.ranker = ranker",
    """        layers = self.ranker
        asked, told = (layers.mix(layers.words(tokens).mean(1)) for tokens in (asked, told))
        scores = torch.cosine_similarity(asked, told) * layers.strength
        return scores + (0.5 - scores.max()).clamp(min=0)""",
    "        self.hot = compile(Hot(ranker))",
    """        scores = self.hot(tokens_of([query]), tokens_of(documents))
        found = sorted(range(len(documents)), key=lambda i: -scores[i].item())
        self.ranker.served = self.ranker.served + 1
        self.ranker.log += [(query, documents[found[0]], round(scores.tolist()[found[0]], 2))]
        return list(map(documents.__getitem__, found))""",
)

BORDERS = """    count, known = limit // len(batches), {}
    ends = sorted({*lengths, longest})

    def cheapest(upto, left):
        # the least for all requests of at most ends[upto], with `left` borders, the last of them ends[upto]
        if (upto, left) not in known:
            known[upto, left] = (ends[upto] * sum(n <= ends[upto] for n in lengths), [ends[upto]])
            for i in range(upto if left > 1 else 0):
                cost, borders = cheapest(i, left - 1)
                cost += ends[upto] * sum(ends[i] < n <= ends[upto] for n in lengths)
                known[upto, left] = min(known[upto, left], (cost, [*borders, ends[upto]]))
        return known[upto, left]

    return cheapest(len(ends) - 1, count)[1]"""

WARM = """    import itertools
    before = server.answered, server.noted.copy(), server.dice.get_state()
    for question, batch, border in itertools.product(server.QUESTIONS, server.BATCHES, server.BORDERS):
        def run(question=question, shape=(batch, border)):
            with torch.inference_mode():
                server.models[question](torch.zeros(shape, dtype=torch.int64))
        server.worker.submit(run).result()"""

CACHE = (
    """    n = prompt.shape[0]
    keys, values = (part.new_zeros(layer.heads, most, part.shape[-1]) for part in layer.split(prompt)[1:])
    keys[:, :n], values[:, :n] = layer.split(prompt)[1:]
    return keys, values, torch.full((1,), n)""",
    """    query, key, value = layer.split(x)
    keys.index_copy_(1, position, key)
    values.index_copy_(1, position, value)
    seen = torch.arange(keys.shape[1]) <= position
    scores = torch.where(seen, query @ keys.transpose(1, 2) * layer.scale, -torch.inf)
    return layer.mix(scores.softmax(-1), values), keys, values, position + 1""",
)

ALTERNATIVES = {
    "gate": body(PERCENTILE, GATE),
    "hot_path": body(*HOT),
    "best_borders": body(BORDERS),
    "warm_up": body(WARM),
    "cache": body(*CACHE),
}

GREEDY = """    borders = [longest]
    cost = lambda borders: sum(min(b for b in borders if b >= n) for n in lengths)
    while len(borders) < limit // len(batches) and set(lengths) - set(borders):
        borders.append(min(set(lengths) - set(borders), key=lambda new: cost([*borders, new])))
    return sorted(borders)"""

QUANTILES = """    count, ordered = limit // len(batches), sorted(lengths)
    return sorted({ordered[len(ordered) * k // count - 1] for k in range(1, count)} | {longest})"""

WRONG = {
    "gate": {
        "one rank too far": edit("[max(rank, 1) - 1]", "[min(rank, len(samples) - 1)]"),
        "sorted in place": edit(
            "    return sorted(samples)", "    samples.sort()\n    return samples"
        ),
        "divided first": edit(
            "math.ceil(p * len(samples) / 100)", "math.ceil(p / 100 * len(samples))"
        ),
        "5 % are too much": edit("> 1.05 * percentile", ">= 1.05 * percentile"),
        "three times are too much": edit("compiled[0] > 3 *", "compiled[0] >= 3 *"),
        "three times its own": edit("3 * percentile(eager, 99)", "3 * percentile(compiled, 99)"),
        "three times the slowest": edit("3 * percentile(eager, 99)", "3 * max(eager)"),
        "the first, if there are samples": edit(
            "if compiled[0] > 3", 'if broken[:1] != ["samples"] and compiled[0] > 3'
        ),
        "no allowance": edit("1.05 * percentile", "1.00 * percentile"),
        "too much allowance": edit("1.05 * percentile", "1.10 * percentile"),
        "the mean, not the median": edit(
            'broken += [f"p{p}" for p in (50, 95, 99) if percentile(compiled, p)',
            "mean = lambda values: sum(values) / len(values)\n"
            '        broken += ["p50"] if mean(compiled) > 1.05 * mean(eager) else []\n'
            '        broken += [f"p{p}" for p in (95, 99) if percentile(compiled, p)',
        ),
        "the slowest, not the first": edit("compiled[0] > 3", "max(compiled[0], compiled[-1]) > 3"),
        "the first is not looked at": edit("compiled[0] > 3 * percentile(eager, 99)", "False"),
        "a thousand is too few": edit("< 1000", "< 999"),
        "eager's samples are not counted": edit("min(len(eager), len(compiled))", "len(compiled)"),
        "a full room": edit("peak > room", "peak >= room"),
        "one recompile is none": edit("recompiles > 0", "recompiles > 1"),
    },
    "hot_path": {
        "an if on data": edit(
            "return torch.where(best < 0.5, scores + (0.5 - best), scores)",
            "return scores + (0.5 - best) if best < 0.5 else scores",
        ),
        "the branch is lost": edit(
            "torch.where(best < 0.5, scores + (0.5 - best), scores)", "scores"
        ),
        "the strength of now": edit(
            "ranker.words, ranker.mix, ranker.strength",
            "ranker.words, ranker.mix, ranker.strength.item()",
        ),
        "each for itself": edit("torch.where(best < 0.5,", "torch.where(scores < 0.5,"),
        "always": edit(
            "torch.where(best < 0.5, scores + (0.5 - best), scores)", "scores + (0.5 - best)"
        ),
        "compiled for each request": edit(
            "self.hot = compile(Hot(ranker))",
            "self.compile = compile",
            "scores = self.hot(",
            "self.hot = self.compile(Hot(self.ranker))\n        scores = self.hot(",
        ),
        "a function is compiled": edit(
            "compile(Hot(ranker))", "compile(nn.Sequential(Hot(ranker))[0].forward)"
        ),
        "nothing is counted": edit("        self.ranker.served += 1\n", ""),
        "nothing is noted": edit("        self.ranker.log.append(", "        str("),
        "worst first": edit("descending=True", "descending=False"),
        "layers of its own": edit(
            "self.words, self.mix, self.strength = ranker.words, ranker.mix, ranker.strength",
            "import copy\n        ranker = copy.deepcopy(ranker)\n"
            "        self.words, self.mix, self.strength = ranker.words, ranker.mix, ranker.strength",
        ),
        "the embedding is left outside": edit(
            "asked = self.mix(self.words(asked).mean(1))\n        told = self.mix(self.words(told).mean(1))",
            "asked, told = self.mix(asked), self.mix(told)",
            "self.hot(tokens_of([query]), tokens_of(documents))",
            "self.hot(self.ranker.words(tokens_of([query])).mean(1), self.ranker.words(tokens_of(documents)).mean(1))",
        ),
    },
    "best_borders": {
        "the best one, again and again": body(GREEDY),
        "equally many requests for each": body(QUANTILES),
        "batch sizes forgotten": edit("limit // len(batches)", "limit"),
        "the longest of yesterday": edit("sorted({*lengths, longest})", "sorted(set(lengths))"),
        "lengths, not requests": edit(
            "ordered = sorted(lengths)", "ordered = sorted(set(lengths))"
        ),
        "sorted in place": edit(
            "ordered = sorted(lengths)", "lengths.sort()\n    ordered = lengths"
        ),
        "a tuple": edit("list(answer[1])", "answer[1]"),
        "always the whole number": edit(
            "answer = min(answer, best[-1])",
            "answer = best[-1] if best[-1][1] else (0, answer[1][:1])",
        ),
    },
    "warm_up": {
        "nothing": body("    pass"),
        "one question": edit("server.QUESTIONS", "server.QUESTIONS[:1]"),
        "on its own thread": edit(
            "server.answer(question, [[1] * border] * batch)",
            "server.models[question](torch.ones(batch, border, dtype=torch.int64))",
        ),
        "not through the door": edit("server.answer(", "server.work("),
        "borders of this server": edit(
            "in server.BORDERS", "in [b for b in (16, 32, 64) if b <= max(server.BORDERS)]"
        ),
        "it is counted": edit(
            "server.answered, server.noted[:] = answered, noted\n", "server.noted[:] = noted\n"
        ),
        "counted from zero": edit(
            "server.answered, server.noted[:] = answered, noted",
            "server.answered, server.noted[:] = 0, []",
        ),
        "new threads": edit(
            "server.dice.set_state(dice)",
            "server.dice.set_state(dice)\n    server.worker = ThreadPoolExecutor(2)",
        ),
        "torch's random numbers move": edit(
            "server.answer(question, [[1] * border] * batch)",
            "server.answer(question, torch.randint(64, (batch, border)).tolist())",
        ),
        "another number of threads": edit(
            "server.dice.set_state(dice)",
            "server.dice.set_state(dice)\n    torch.set_num_threads(torch.get_num_threads() + 1)",
        ),
        "the dice roll": edit("    server.dice.set_state(dice)\n", ""),
        "new dice": edit("server.dice.set_state(dice)", "server.dice.manual_seed(14)"),
    },
    "cache": {
        "grown": body(
            "    return *layer.split(prompt)[1:], torch.tensor(len(prompt))",
            """    query, key, value = layer.split(x)
    keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
    return layer.mix((query @ keys.transpose(1, 2) * layer.scale).softmax(-1), values), keys, values, position + 1""",
        ),
        "an int": edit("torch.tensor(len(prompt))", "len(prompt)"),
        "always float32": edit("keys.new_zeros(2,", "torch.zeros(2,"),
        "room for the prompt": edit(
            "layer.heads, most,", "layer.heads, max(most, 32) // 32 * (len(prompt) + 8),"
        ),
        "no mask": edit(".masked_fill(places > position, -torch.inf)", ""),
        "not itself": edit("places > position", "places >= position"),
        "one place too far": edit("places == position)", "places == position + 1)"),
        "it stays where it is": edit("position + 1\n", "position\n"),
        "no scale": edit(" * layer.scale", ""),
        "two layouts": edit(
            "    return room[0], room[1], torch",
            "    room = room.transpose(1, 2).contiguous().transpose(1, 2)\n    return room[0], room[1], torch",
            "return layer.mix(scores.softmax(-1), values), keys, values,",
            "return layer.mix(scores.softmax(-1), values), keys.contiguous(), values.contiguous(),",
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
