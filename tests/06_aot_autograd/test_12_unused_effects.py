"""Nobody uses the result of an operation, but the operation does something: it draws, it logs, it raises."""

import pytest
import torch
from same_as_eager import Cases
from torch.nn import functional as F

LOG = []
NINE = torch.tensor([9])


@torch.library.custom_op("course_test_unused::logged", mutates_args=())
def logged(x: torch.Tensor, tag: str) -> torch.Tensor:
    LOG.append(tag)
    return x.clone()


@torch.library.custom_op("course_test_unused::pair", mutates_args=())
def pair(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    LOG.append("pair")
    return x.clone(), x + 1


@torch.library.custom_op("course_test_unused::nothing", mutates_args=())
def nothing(x: torch.Tensor) -> None:
    LOG.append("nothing")


logged.register_fake(lambda x, tag: torch.empty_like(x))
pair.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
nothing.register_fake(lambda x: None)

DRAWS = {
    "rand": lambda x: torch.rand(3),
    "randn_like": lambda x: torch.randn_like(x),
    "of what is computed": lambda x: torch.bernoulli((x * 0.5).sigmoid()),
    "dropout": lambda x: F.dropout(x),
    "in place": lambda x: torch.empty(3).uniform_(),
    "randint": lambda x: torch.randint(3, (2,)),
    "randperm": lambda x: torch.randperm(4),
    "multinomial": lambda x: torch.multinomial(torch.ones(3), 2),
    "normal": lambda x: torch.normal(0.0, 1.0, (3,)),
    "only its shape": lambda x: x.new_ones(torch.rand(3).shape),
    "set to zero": lambda x: torch.rand(3).zero_(),
    "then computed with": lambda x: torch.rand(3).exp() * x,
}
LOGS = {
    "one result": lambda x: logged(x, "a"),
    "two results": pair,
    "the second of two": lambda x: pair(x)[1],
    "no result": nothing,
    "twice the same": lambda x: logged(x, "a") + logged(x, "a"),
    "in order": lambda x: (logged(x * 2, "a"), nothing(x), logged(x, "b")),
}
RAISES = {
    "index": lambda x: x[NINE],
    "index by a list": lambda x: x[[9]],
    "index, computed with": lambda x: x[NINE] * 2,
    "index, only its shape": lambda x: x.new_ones(x[NINE].shape),
    "gather": lambda x: x.gather(0, NINE),
    "index_select": lambda x: x.index_select(0, NINE),
    "take": lambda x: torch.take(x, NINE),
    "scatter": lambda x: x.scatter(0, NINE, 1.0),
    "embedding": lambda x: F.embedding(NINE, x[:, None]),
    "nll_loss": lambda x: F.nll_loss(x[None].log_softmax(1), NINE),
    "cross_entropy": lambda x: F.cross_entropy(x[None], NINE),
    "one_hot": lambda x: F.one_hot(NINE, 3),
    "integer division": lambda x: torch.tensor([1, 2]) // torch.tensor([0, 1]),
    "integer remainder": lambda x: torch.tensor([1, 2]) % torch.tensor([0, 1]),
    "cholesky": lambda x: torch.linalg.cholesky(-torch.eye(3) * x),
    "inverse": lambda x: torch.linalg.inv(torch.zeros(3, 3) * x),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x * 5, x),
    "bernoulli": lambda x: torch.bernoulli(x * 5),
    "multinomial of negative": lambda x: torch.multinomial(-x, 1),
}


def with_unused(operation):
    """The operation's result is dropped; random numbers are drawn before, and behind it."""

    def function(x):
        y = x + torch.rand(3)
        operation(x)
        return y * torch.rand(3)

    return function


def calls(function, wants_gradient):
    def body(compile):
        LOG.clear()
        fast, found = compile(function), []
        for _ in range(2):
            x = torch.ones(3, requires_grad=wants_gradient)
            y = fast(x)
            if wants_gradient:
                y.sum().backward()
            found += [y.detach(), x.grad]
        return found, list(LOG), torch.rand(1)

    return body


case = Cases()
for kind, operations in (("draws", DRAWS), ("logs", LOGS), ("raises", RAISES)):
    for name, operation in operations.items():
        for wants_gradient in (False, True):
            body = calls(with_unused(operation), wants_gradient)
            options = [{"backend": "aot_eager"}]
            if not wants_gradient:
                options.append({"backend": "inductor"})
            # an operator that logs stays in the graph if the user wants one graph
            if kind == "logs":
                options.append({"backend": "aot_eager", "fullgraph": True})
            for chosen in options:
                grad = ", with gradients" if wants_gradient else ""
                case(
                    f"{kind}: {name}{grad}, {', '.join(map(str, chosen.values()))}", body, **chosen
                )


@pytest.mark.parametrize("name", case.names)
def test_an_unused_operation_does_what_it_does_in_eager(name):
    case.check(name)
