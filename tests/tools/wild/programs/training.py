"""Optimizers, metrics, records of tensors, and frameworks around training."""

import torch
from table import Training, program, rows
from torch import nn


def stepping(make_optimizer):
    """A program whose every call is a step of training with its own optimizer: only that step is compiled."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = make_optimizer(model.parameters())

    def run(x):
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.1) * x.mean()
        optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    return Training(run, rows(4), [])


@program("lion-pytorch")
def lion():
    from lion_pytorch import Lion

    return stepping(lambda parameters: Lion(parameters, lr=1e-3, weight_decay=1e-2))


@program("schedulefree")
def schedule_free():
    import schedulefree

    def make(parameters):
        optimizer = schedulefree.AdamWScheduleFree(parameters, lr=1e-3, warmup_steps=2)
        optimizer.train()
        return optimizer

    return stepping(make)


@program("torch-optimizer")
def torch_optimizer_lamb():
    import torch_optimizer

    return stepping(lambda parameters: torch_optimizer.Lamb(parameters, lr=1e-3))


@program("pytorch-optimizer")
def pytorch_optimizer_adan():
    from pytorch_optimizer import Adan

    return stepping(lambda parameters: Adan(parameters, lr=1e-3))


@program("pytorch-optimizer")
def pytorch_optimizer_sophia():
    from pytorch_optimizer import AdaBelief

    return stepping(lambda parameters: AdaBelief(parameters, lr=1e-3))


@program("torch-ema")
def exponential_average():
    from torch_ema import ExponentialMovingAverage

    model = nn.Linear(4, 4)
    average = ExponentialMovingAverage(model.parameters(), decay=0.9)

    def run(x):
        average.update()
        return model(x), list(average.shadow_params)

    return Training(run, rows(4), model.parameters())


@program("torchmetrics")
def torchmetrics_functional():
    from torchmetrics.functional import accuracy, mean_squared_error, pearson_corrcoef

    layer = nn.Linear(4, 3)

    def run(x, y):
        logits = layer(x)
        return (
            accuracy(logits, y, task="multiclass", num_classes=3),
            mean_squared_error(logits[:, 0], x[:, 0]),
            pearson_corrcoef(logits[:, 0], x[:, 0]),
        )

    return Training(
        run, lambda n: (torch.randn(4 * n, 4), torch.randint(0, 3, (4 * n,))), layer.parameters()
    )


@program("torchmetrics")
def torchmetrics_module():
    import torchmetrics

    metric = torchmetrics.MeanSquaredError()
    layer = nn.Linear(4, 1)

    def run(x):
        predicted = layer(x).squeeze(-1)
        metric.update(predicted.detach(), x.sum(-1))
        return predicted, metric.compute()

    return Training(run, rows(4), layer.parameters())


@program("lightning")
def lightning_module():
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({"width": 8})
            self.layers = nn.Sequential(
                nn.Linear(4, self.hparams.width), nn.ReLU(), nn.Linear(8, 2)
            )

        def forward(self, x):
            return self.layers(x)

        def training_step(self, batch, number):
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

    model = Model()
    return Training(
        lambda x, y: model.training_step((x, y), 0),
        lambda n: (torch.randn(4 * n, 4), torch.randint(0, 2, (4 * n,))),
        model.parameters(),
    )


@program("tensordict")
def tensordict_module():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    first = TensorDictModule(nn.Linear(4, 8), in_keys=["x"], out_keys=["h"])
    second = TensorDictModule(nn.Tanh(), in_keys=["h"], out_keys=["y"])
    model = TensorDictSequential(first, second)

    def run(x):
        record = TensorDict({"x": x}, batch_size=[x.shape[0]])
        return model(record)["y"]

    return Training(run, rows(4), model.parameters())


@program("fastai")
def fastai_layers():
    from fastai.layers import ConvLayer, Mish
    from fastai.losses import LabelSmoothingCrossEntropy

    model = nn.Sequential(ConvLayer(3, 8), Mish(), nn.Flatten(), nn.LazyLinear(3))
    model(torch.randn(1, 3, 8, 8))
    loss = LabelSmoothingCrossEntropy()
    return Training(
        lambda x, y: loss(model(x), y),
        lambda n: (torch.randn(2 * n, 3, 8, 8), torch.randint(0, 3, (2 * n,))),
        model.parameters(),
    )
