"""Equations, probability, geometry, graphs, neurons."""

import torch
from table import Training, program, rows
from torch import nn


class Field(nn.Module):
    """The right-hand side of a differential equation."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, t, y):
        return self.layers(y) - 0.1 * t


@program("torchdiffeq")
def torchdiffeq_fixed():
    from torchdiffeq import odeint

    field, times = Field(), torch.linspace(0.0, 1.0, 5)
    return Training(
        lambda y: odeint(field, y, times, method="rk4"),
        lambda n: (torch.randn(n, 3),),
        field.parameters(),
    )


@program("torchdiffeq")
def torchdiffeq_adaptive():
    from torchdiffeq import odeint

    field, times = Field(), torch.linspace(0.0, 1.0, 3)
    return Training(
        lambda y: odeint(field, y, times, method="dopri5", rtol=1e-3, atol=1e-3),
        lambda n: (torch.randn(n, 3),),
        field.parameters(),
    )


@program("torchdiffeq")
def torchdiffeq_adjoint():
    from torchdiffeq import odeint_adjoint

    field, times = Field(), torch.linspace(0.0, 1.0, 3)
    return Training(
        lambda y: odeint_adjoint(field, y, times, method="euler"),
        lambda n: (torch.randn(n, 3),),
        field.parameters(),
    )


@program("torchsde")
def torchsde_euler():
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.spread = nn.Linear(3, 3), nn.Linear(3, 3)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return self.spread(y).sigmoid()

    equation, times = Equation(), torch.linspace(0, 1, 4)
    return Training(
        lambda y: torchsde.sdeint(equation, y, times, dt=0.1, method="euler"),
        lambda n: (torch.randn(n, 3),),
        equation.parameters(),
    )


@program("torchcde", "torchdiffeq", "torchsde")
def torchcde_paths():
    import torchcde

    layer = nn.Linear(3, 3)

    def run(x):
        coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(layer(x))
        path = torchcde.CubicSpline(coefficients)
        return path.evaluate(torch.tensor(1.5)), path.derivative(torch.tensor(0.5))

    return Training(run, lambda n: (torch.randn(n, 5, 3),), layer.parameters())


@program("gpytorch")
def gpytorch_exact():
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(None, None, likelihood)
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def run(x, y):
        return -loss(model.forward(x), y)

    return Training(run, lambda n: (torch.rand(4 * n, 1), torch.rand(4 * n)), model.parameters())


@program("gpytorch")
def gpytorch_kernels():
    import gpytorch

    kernel = gpytorch.kernels.MaternKernel(nu=2.5) + gpytorch.kernels.PeriodicKernel()
    return Training(
        lambda x: kernel(x).to_dense(), lambda n: (torch.rand(3 * n, 1),), kernel.parameters()
    )


@program("botorch", "gpytorch")
def botorch_acquisition():
    from botorch.acquisition import ExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(6, 2, dtype=torch.double)
    model = SingleTaskGP(x, x.sum(-1, keepdim=True).sin())
    improvement = ExpectedImprovement(model, best_f=0.5)
    return Training(improvement, lambda n: (torch.rand(n, 1, 2, dtype=torch.double),))


@program("botorch", "gpytorch")
def botorch_functions():
    from botorch.test_functions import Ackley, Branin

    ackley, branin = Ackley(dim=2), Branin()
    weight = nn.Parameter(torch.ones(2, dtype=torch.double))
    return Training(
        lambda x: (ackley(x * weight), branin(x * weight)),
        lambda n: (torch.rand(n, 2, dtype=torch.double),),
        [weight],
    )


@program("pyro-ppl")
def pyro_trace():
    import pyro
    import pyro.distributions as dist
    from pyro import poutine

    layer = nn.Linear(4, 1)

    def model(x, y):
        noise = pyro.sample("noise", dist.Gamma(2.0, 2.0))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Normal(layer(x).squeeze(-1), noise), obs=y)

    def run(x, y):
        return poutine.trace(model).get_trace(x, y).log_prob_sum()

    return Training(run, lambda n: (torch.randn(4 * n, 4), torch.randn(4 * n)), layer.parameters())


@program("pyro-ppl")
def pyro_distributions():
    import pyro.distributions as dist

    layer = nn.Linear(4, 4)

    def run(x):
        rates = layer(x).exp()
        normal = dist.Normal(layer(x), 1.0).to_event(1)
        return normal.log_prob(x), dist.Gamma(rates, rates).log_prob(rates + 1), normal.entropy()

    return Training(run, rows(4), layer.parameters())


@program("nflows")
def nflows_maf():
    from nflows.distributions import StandardNormal
    from nflows.flows import Flow
    from nflows.transforms import (
        CompositeTransform,
        MaskedAffineAutoregressiveTransform,
        ReversePermutation,
    )

    steps = [ReversePermutation(4), MaskedAffineAutoregressiveTransform(4, 8)]
    flow = Flow(CompositeTransform(steps), StandardNormal([4]))

    class Likelihood(nn.Module):
        def __init__(self):
            super().__init__()
            self.flow = flow

        def forward(self, x):
            return self.flow.log_prob(x)

    return Training(Likelihood(), rows(4))


@program("zuko")
def zuko_nsf():
    import zuko

    flow = zuko.flows.NSF(features=3, context=2, transforms=1, hidden_features=(8,))
    return Training(
        lambda x, c: -flow(c).log_prob(x),
        lambda n: (torch.randn(3 * n, 3), torch.randn(3 * n, 2)),
        flow.parameters(),
    )


@program("normflows")
def normflows_realnvp():
    import normflows as nf

    flows = []
    for _ in range(2):
        flows += [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=True)),
            nf.flows.Permute(2),
        ]
    model = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), flows)
    return Training(lambda x: model.forward_kld(x), rows(2), model.parameters())


@program("e3nn")
def e3nn_layers():
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o")
    return Training(product, lambda n: (torch.randn(n, 5), torch.randn(n, 4)))


@program("e3nn")
def e3nn_harmonics():
    from e3nn import o3

    layer = nn.Linear(3, 3)
    return Training(
        lambda x: o3.spherical_harmonics([0, 1, 2], layer(x), normalize=True),
        lambda n: (torch.randn(4 * n, 3),),
        layer.parameters(),
    )


@program("torch-geometric")
def geometric_gcn():
    from torch_geometric.nn import GCNConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(4, 8), GCNConv(8, 3)

        def forward(self, x, edges, batch):
            x = self.first(x, edges).relu()
            return global_mean_pool(self.second(x, edges), batch, 2)

    def inputs(n):
        nodes = 5 * n
        batch = (torch.arange(nodes) >= nodes // 2).long()
        return torch.randn(nodes, 4), torch.randint(0, nodes, (2, 4 * nodes)), batch

    return Training(Net(), inputs)


@program("torch-geometric")
def geometric_gat():
    from torch_geometric.nn import GATConv, SAGEConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GATConv(4, 8, heads=2), SAGEConv(16, 3)

        def forward(self, x, edges):
            return self.second(self.first(x, edges).relu(), edges)

    return Training(Net(), lambda n: (torch.randn(5 * n, 4), torch.randint(0, 5 * n, (2, 20 * n))))


@program("snntorch")
def snntorch_leaky():
    import snntorch

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.leaky = nn.Linear(4, 8), snntorch.Leaky(beta=0.9)

        def forward(self, x):
            memory, spikes = self.leaky.init_leaky(), []
            for _ in range(4):
                spike, memory = self.leaky(self.layer(x), memory)
                spikes.append(spike)
            return torch.stack(spikes), memory

    return Training(Net(), rows(4))


@program("norse")
def norse_lif():
    from norse.torch import LIFCell, SequentialState

    model = SequentialState(nn.Linear(4, 8), LIFCell(), nn.Linear(8, 3))

    def run(x):
        state, total = None, 0.0
        for _ in range(4):
            out, state = model(x, state)
            total = total + out
        return total

    return Training(run, rows(4), model.parameters())


@program("spikingjelly")
def spikingjelly_lif():
    from spikingjelly.activation_based import functional, layer, neuron, surrogate

    model = nn.Sequential(
        layer.Linear(4, 8), neuron.LIFNode(tau=2.0, surrogate_function=surrogate.ATan())
    )

    def run(x):
        functional.reset_net(model)
        return sum(model(x) for _ in range(3))

    return Training(run, rows(4), model.parameters())
