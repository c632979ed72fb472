# SPDX-License-Identifier: Apache-2.0
"""Takes and gives back memory with PyTorch. Its cache is emptied each time, so that PyTorch calls cudaMalloc and
cudaFree. (For 1 MiB and less it asks for 2 MiB.) Then it works in rounds, and empties its cache after each."""
import argparse

import torch

from marks import Rounds, begin, expect, finish, times_by_size

COUNT = 1 << 20


def give(address):
    torch.cuda.caching_allocator_delete(address)
    torch.cuda.empty_cache()


def take_pinned(size):
    return [torch.empty(size, dtype=torch.uint8, pin_memory=True)]


def give_pinned(holder):
    holder.clear()
    torch._C._host_emptyCache()  # pylint: disable=protected-access


def work():
    numbers = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    ordered = torch.sort(-numbers).values
    total = float((ordered + numbers.flip(0)).abs().sum())
    expect(total == 0, f"a sort with PyTorch: {total}")
    del numbers, ordered
    torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    work()
    before = torch.cuda.mem_get_info()[0]
    begin()
    times = times_by_size("device", torch.cuda.caching_allocator_alloc, give, options.seconds)
    if hasattr(torch._C, "_host_emptyCache"):  # pylint: disable=protected-access
        times.update(times_by_size("pinned", take_pinned, give_pinned, options.seconds))
    rounds = Rounds(options.seconds)
    for _ in rounds:
        work()
    finish(version=f"PyTorch {torch.__version__}", work=f"{rounds.count} rounds", rate=rounds.rate, unit="rounds/s",
           values={"reserved": torch.cuda.memory_reserved()}, times=times,
           missing=before - torch.cuda.mem_get_info()[0])


main()
