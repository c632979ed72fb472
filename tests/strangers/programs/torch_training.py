# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with PyTorch, over and over from the same beginning: as a CUDA graph, and through
torch.compile. Each training must end with the loss of the first one."""
import argparse
import os

import torch
from torch import nn

from marks import Rounds, begin, close, expect, finish

STEPS = 50


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)).cuda()


def loss_of(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs), targets)


class Training:
    """A model, its data, and what it was like at the beginning."""

    def __init__(self):
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.inputs = torch.randn(1024, 256, device="cuda")
        self.targets = (self.inputs[:, :10]).argmax(1)
        self.first = [parameter.detach().clone() for parameter in self.model.parameters()]

    def restart(self):
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), self.first):
                parameter.copy_(value)


class AsGraph(Training):
    def __init__(self):
        super().__init__()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = loss_of(self.model, self.inputs, self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def run(self):
        self.restart()
        for _ in range(STEPS):
            self.graph.replay()
        return self.loss.item()


class Compiled(Training):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(self.model)
        self.run()

    def run(self):
        self.restart()
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            loss = loss_of(self.compiled, self.inputs, self.targets)
            loss.backward()
            self.optimizer.step()
        return loss.item()


def loaders():
    """What a program does around its training: pinned memory, copies in another stream, sorting, memory given back."""
    here = torch.arange(1 << 18, dtype=torch.float32).pin_memory()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        there = here.to("cuda", non_blocking=True)
        there = (there * 2 + 1).flip(0)
        ordered, _ = there.sort()
    stream.synchronize()
    expect(torch.equal(ordered.cpu(), here * 2 + 1), "sorted values are others")
    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")
    torch.backends.cuda.matmul.allow_tf32 = False
    trainings = {"CUDA graph": AsGraph(), "torch.compile": Compiled()}
    first = {name: one.run() for name, one in trainings.items()}
    loaders()
    begin()
    rounds = Rounds(options.seconds)
    for _ in rounds:
        for name, one in trainings.items():
            close(one.run(), first[name], f"the loss with {name}")
        loaders()
    finish(version=torch.__version__, work=f"{rounds.count * 2 * STEPS} steps", rate=rounds.rate * 2 * STEPS,
           unit="steps/s", values=first)


main()
