# SPDX-License-Identifier: Apache-2.0
"""Sends tensors on the device to another process with PyTorch's multiprocessing, by legacy IPC handles. The other
process sums each of them. If the first one is refused, the program goes on with new memory."""
import argparse

import torch
import torch.multiprocessing

from marks import Rounds, begin, expect, finish

COUNT = 1 << 20
PATIENCE = 60  # seconds for an answer


def answer(connection):
    """The other process."""
    while True:
        tensor = connection.recv()
        if tensor is None:
            return
        total = float(tensor.double().sum())
        del tensor  # before the first process reuses its memory
        connection.send(total)


def exchange(connection, first):
    """Sends a tensor and compares the sum that comes back."""
    tensor = torch.arange(first, first + COUNT, dtype=torch.float32, device="cuda")
    connection.send(tensor)
    expect(connection.poll(PATIENCE), "the other process does not answer")
    total = connection.recv()
    expect(total == COUNT * (2 * first + COUNT - 1) / 2, f"the other process sums a tensor to {total}")
    return total


def is_refused(connection):
    try:
        exchange(connection, 0)
        return False
    except RuntimeError as error:
        print(f"The first tensor was not sent: {error}", flush=True)
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    connection, other_end = context.Pipe()
    other = context.Process(target=answer, args=(other_end,), daemon=True)
    other.start()
    other_end.close()
    refused = is_refused(connection)
    torch.cuda.empty_cache()  # so that PyTorch asks the driver for memory again
    total = exchange(connection, 1)
    begin()
    rounds = Rounds(options.seconds)
    for index in rounds:
        exchange(connection, index % 1000)
    connection.send(None)
    other.join(PATIENCE)
    expect(other.exitcode == 0, f"the other process ended with {other.exitcode}")
    finish(version=torch.__version__, work=f"{rounds.count} tensors", rate=rounds.rate, unit="tensors/s",
           refused=refused, values={"sum": total})


if __name__ == "__main__":  # the other process imports this file
    main()
