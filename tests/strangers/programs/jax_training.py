# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with JAX, over and over from the same beginning, and sorts. Each training must end with the
loss of the first one."""
import argparse

import jax
import jax.numpy as jnp

from marks import Rounds, begin, close, expect, finish

STEPS = 50


def loss_of(parameters, inputs, targets):
    hidden = jnp.tanh(inputs @ parameters["a"])
    return jnp.mean((hidden @ parameters["b"] - targets) ** 2)


@jax.jit
def step(parameters, inputs, targets):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, targets)
    return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients), loss


def train(parameters, inputs, targets):
    for _ in range(STEPS):
        parameters, loss = step(parameters, inputs, targets)
    return float(loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", "highest")  # so that any algorithm gives the same loss
    expect(jax.devices()[0].platform in ("gpu", "cuda"), f"JAX computes on {jax.devices()[0].platform}")
    keys = jax.random.split(jax.random.key(7), 4)
    parameters = {"a": 0.05 * jax.random.normal(keys[0], (512, 1024)), "b": 0.05 * jax.random.normal(keys[1], (1024, 16))}
    inputs = jax.random.normal(keys[2], (4096, 512))
    targets = inputs[:, :16] * 0.5
    values = jax.random.normal(keys[3], (1 << 16,))
    first = train(parameters, inputs, targets)
    sort = jax.jit(jnp.sort)
    expect(bool((jnp.diff(sort(values)) >= 0).all()), "sorted values")
    begin()
    rounds = Rounds(options.seconds)
    for index in rounds:
        close(train(parameters, inputs, targets), first, "the loss with JAX")
        ordered = sort(values + index)  # memory from the device each time
        expect(bool((jnp.diff(ordered) >= 0).all()), "sorted values")
    finish(version=jax.__version__, work=f"{rounds.count * STEPS} steps", rate=rounds.rate * STEPS, unit="steps/s",
           values={"loss": first})


main()
