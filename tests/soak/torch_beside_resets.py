#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch in one process with a plug-in that resets the device.

    torch_beside_resets.py [--multiprocessors 32] [--json FILE]

Each arrangement is a process of its own: PyTorch as a tenant with a private lease, and with a
partition of the device; beside it a tenant whose library resets the device, over and over, also
while PyTorch computes. Old tensors have to stay what they were, and operators that nobody used
before have to work. The last arrangement is the same without a broker: there the damage has to
show. --without-torch puts a few driver calls in PyTorch's place, for machines without a GPU.

Stands in bin/, beside lib/ and test_plugins/. Status 0: every arrangement did what it should.
"""

import argparse
import ctypes
import faulthandler
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

from python_host import ROOT, Broker, Driver, Nowhere, Tenant, pointer, text, u64

RESULT = "RESULT "

# ---- Who computes ------------------------------------------------------------------------------


def expect(right, what):
    if not right:
        raise AssertionError(what)


class TorchWork:
    """PyTorch, imported inside its tenant's guard; every result is compared with the CPU's."""

    def __init__(self, tenant):
        # Before Python loads them, so that they are the tenant's: PyTorch has threads of its own.
        folder = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0])
        if not isinstance(tenant, Nowhere):
            for name in ("libtorch_cuda.so", "libtorch_python.so"):
                tenant.adopt(folder / "lib" / name)
        with tenant.inside("import torch"):
            import torch
        self.torch = torch
        self.version = torch.__version__

    def same(self, name, compute, *tensors, tolerance=1e-4):
        """`compute` on the device and on the CPU."""
        expected = compute(*tensors)
        got = compute(*(one.cuda() for one in tensors)).cpu()
        scale = expected.abs().max().clamp(min=1)
        difference = ((got - expected).abs().max() / scale).item()
        expect(difference <= tolerance, f"{name}: differs by {difference}")

    def gradient(self, name, compute, *tensors):
        """The backward pass runs on a thread of PyTorch's own."""
        def gradients(*those):
            leaves = [one.detach().clone().requires_grad_() for one in those]
            compute(*leaves).backward()
            return self.torch.cat([leaf.grad.flatten() for leaf in leaves])
        self.same(name, gradients, *tensors)
        leaf = tensors[0].cuda().clone().requires_grad_()
        compute(leaf, *(one.cuda() for one in tensors[1:])).backward()
        return leaf.grad.data_ptr()

    def begin(self):
        torch = self.torch
        torch.manual_seed(1)
        self.a, self.b = torch.randn(384, 256), torch.randn(256, 192)
        self.old = [torch.arange(1 << 20, dtype=torch.float32, device="cuda"), self.a.cuda()]
        self.expected = [one.cpu().clone() for one in self.old]
        self.again()
        self.grad_address = self.gradient(
            "backward", lambda a, b: torch.relu(a @ b).pow(2).mean(), self.a, self.b)
        return [self.old[0].data_ptr(), self.grad_address]

    def check_old(self):
        for got, expected in zip(self.old, self.expected):
            expect(self.torch.equal(got.cpu(), expected), "an old tensor is not what it was")

    def again(self):
        torch = self.torch
        self.same("matmul", lambda a, b: a @ b, self.a, self.b)
        self.same("exp", lambda a: torch.exp(-a * a), self.a)
        self.same("sum", lambda a: a.sum(dim=0), self.a)

    def new(self):
        """Operators that were never used before: their modules are loaded now."""
        torch = self.torch
        functional = torch.nn.functional
        image, filters = torch.randn(2, 3, 32, 32), torch.randn(8, 3, 3, 3)
        cases = {
            "sort": lambda a: torch.sort(a, dim=1).values,
            "cumsum": lambda a: torch.cumsum(a, dim=1),
            "softmax": lambda a: torch.softmax(a, dim=1),
            "topk": lambda a: torch.topk(a, 5, dim=1).values,
            "fft": lambda a: torch.view_as_real(torch.fft.rfft(a)),
            "layer_norm": lambda a: functional.layer_norm(a, (256,)),
            "unique": lambda a: torch.unique((a * 4).round()),
            "half": lambda a: (a.half() * 2).float(),
            "median": lambda a: a.median(dim=1).values,
            "index_add": lambda a: torch.zeros_like(a).index_add(
                0, torch.arange(a.shape[0], device=a.device), a),
        }
        for name, compute in cases.items():
            self.same(name, compute, self.a)
        self.same("bmm", torch.bmm, torch.randn(4, 32, 48), torch.randn(4, 48, 16))
        self.same("conv2d", lambda i, f: functional.conv2d(i, f, padding=1), image, filters,
                  tolerance=5e-3)
        self.gradient("backward of softmax", lambda a, b: torch.softmax(a @ b, 1).pow(2).sum(),
                      self.a, self.b)
        self.graph()
        return len(cases) + 4

    def graph(self):
        """Steps of a training as a CUDA graph, which PyTorch captures in a stream of its own."""
        torch = self.torch
        inputs = [torch.randn(16, 64) for _ in range(3)]
        plain = torch.nn.Linear(64, 32)
        trained = torch.nn.Linear(64, 32).cuda()
        given = torch.zeros(16, 64, device="cuda")

        def step(model, tensor):
            loss = model(tensor).pow(2).mean()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= parameter.grad
                    parameter.grad.zero_()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(trained, given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(trained, given)
        trained.load_state_dict(plain.state_dict())
        for tensor in inputs:
            given.copy_(tensor)
            graph.replay()
            step(plain, tensor)
        difference = (trained.weight.cpu() - plain.weight).abs().max().item()
        expect(difference <= 1e-4, f"training as a CUDA graph: differs by {difference}")

    def rate(self, seconds=1.0):
        """Of a matrix product in single precision, in TFLOP/s."""
        torch = self.torch
        size = 4096
        a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
        torch.backends.cuda.matmul.allow_tf32 = False
        for _ in range(3):
            a @ b
        torch.cuda.synchronize()
        count, begin = 0, time.monotonic()
        while time.monotonic() - begin < seconds:
            for _ in range(4):
                a @ b
            torch.cuda.synchronize()
            count += 4
        return 2 * size ** 3 * count / (time.monotonic() - begin) / 1e12

    def end(self):
        self.old = None
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()


IMAGE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry %s(.param .u64 data) {
  .reg .b32 %%r<3>;
  .reg .b64 %%rd<4>;
  ld.param.u64 %%rd1, [data];
  cvta.to.global.u64 %%rd1, %%rd1;
  mov.u32 %%r1, %%tid.x;
  mul.wide.u32 %%rd2, %%r1, 4;
  add.s64 %%rd1, %%rd1, %%rd2;
  ld.global.u32 %%r2, [%%rd1];
  add.s32 %%r2, %%r2, %d;
  st.global.u32 [%%rd1], %%r2;
  ret;
}
\0"""


class DriverWork:
    """A few driver calls in PyTorch's place, so that the rest can be tried without a GPU."""

    version = "none"
    count = 256

    def __init__(self, tenant):
        self.tenant, self.driver = tenant, Driver()
        if isinstance(tenant, Nowhere):
            self.driver.call("cuInit", ctypes.c_uint(0))
            self.driver.call("cuCtxSetCurrent", pointer(self.driver.primary()))

    def module(self, name, step):
        module, function = pointer(), pointer()
        self.driver.call("cuModuleLoadData", ctypes.byref(module), IMAGE % (name, step))
        self.driver.call("cuModuleGetFunction", ctypes.byref(function), module, name)
        return function

    def compute(self, function):
        argument = u64(self.memory)
        arguments = (pointer * 1)(ctypes.cast(ctypes.byref(argument), pointer))
        one = ctypes.c_uint(1)
        self.driver.call("cuLaunchKernel", function, one, one, one, ctypes.c_uint(self.count), one,
                         one, ctypes.c_uint(0), pointer(), arguments, pointer())

    def begin(self):
        address = u64()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * self.count))
        self.memory, self.values = address.value, [0] * self.count
        self.driver.call("cuMemsetD32_v2", u64(self.memory), ctypes.c_uint(0),
                         ctypes.c_size_t(self.count))
        self.function = self.module(b"first", 1)
        self.again()
        return [self.memory]

    def check_old(self):
        got = (ctypes.c_uint * self.count)()
        self.driver.call("cuMemcpyDtoH_v2", ctypes.byref(got), u64(self.memory),
                         ctypes.c_size_t(4 * self.count))
        expect(list(got) == self.values, "old memory is not what it was")

    def again(self):
        self.compute(self.function)
        self.values = [value + 1 for value in self.values]
        self.check_old()

    def new(self):
        self.compute(self.module(b"second", 7))
        self.values = [value + 7 for value in self.values]
        self.check_old()
        return 1

    def rate(self):
        return None

    def end(self):
        self.driver.call("cuMemFree_v2", u64(self.memory))


# ---- The one that resets -----------------------------------------------------------------------


class Resetter:
    MODES = ("runtime_static", "runtime_shared", "proc_address", "linked", "dlsym")
    # By name, and the function of the driver that the gate must have seen.
    ATTACKS = ("reset", "release")

    def __init__(self, tenant, with_runtime):
        self.tenant, self.functions, self.count, self.left_out = tenant, [], 0, []
        for mode in self.MODES:
            path = ROOT / "test_plugins" / f"attacks_{mode}.so"
            if not path.exists() or (mode.startswith("runtime") and not with_runtime):
                continue
            try:
                symbol = tenant.adopt(path)
            except (RuntimeError, OSError) as error:  # no shared runtime library on this machine
                self.left_out.append(f"{mode}: {error}")
                continue
            kind = ctypes.CFUNCTYPE(ctypes.c_int, text, pointer)
            self.functions.append((mode, kind(symbol("ctxb_test_attack")),
                                   kind(symbol("ctxb_test_attack_on_own_thread"))))
        expect(self.functions, "there is no library that resets")

    def attack(self):
        target = (ctypes.c_byte * 64)()  # nothing to aim at
        for _mode, here, on_own_thread in self.functions:
            for attack in self.ATTACKS:
                with self.tenant.inside("attack"):
                    here(attack.encode(), target)
                on_own_thread(attack.encode(), target)
                self.count += attack == "reset" and 2 or 0


def attack_until(stop, resetter, failures):
    try:
        while not stop.is_set():
            resetter.attack()
    except Exception as error:  # told by the thread that waits for this one
        failures.append(f"the attacking thread: {error}")


# ---- One arrangement, in a process of its own ---------------------------------------------------


def work_beside_resets(worker, resetter, tenant, seconds):
    """The addresses of what was made; raises when something is not right."""
    with tenant.inside("begin"):
        addresses = worker.begin()
    for _ in range(3):
        resetter.attack()
        with tenant.inside("after a reset"):
            worker.check_old()
            worker.again()
    stop, failures, rounds = threading.Event(), [], 0
    attacker = threading.Thread(target=attack_until, args=(stop, resetter, failures))
    attacker.start()
    try:
        begin = time.monotonic()
        with tenant.inside("beside resets"):
            while time.monotonic() - begin < seconds:
                worker.again()
                worker.check_old()
                rounds += 1
    finally:
        stop.set()
        attacker.join()
    expect(not failures, "; ".join(failures))
    with tenant.inside("new operators"):
        new = worker.new()
        worker.check_old()
    return addresses, rounds, new


def name_of(context, lease, primary):
    return {lease: "its own", primary: "the primary's"}.get(context, hex(context or 0))


def run_arrangement(name, options):
    faulthandler.enable()
    faulthandler.dump_traceback_later(options.timeout * 0.9)
    result = {"arrangement": name}
    unprotected = name == "none"
    broker = None if unprotected else Broker("torch_beside_resets", options.records)
    multiprocessors = options.multiprocessors if name == "green" else 0
    if unprotected:
        tenant, other = Nowhere(), Nowhere()
    else:
        tenant = Tenant(broker, "torch", name, multiprocessors)
        other = Tenant(broker, "resetter", "green", 8 if name == "green" else 0)
        lease = tenant.lease()
        result["multiprocessors"] = lease.multiprocessors
    worker = (DriverWork if options.without_torch else TorchWork)(tenant)
    result["torch"] = worker.version
    resetter = Resetter(other, not options.without_torch)
    if resetter.left_out:
        result["left_out"] = resetter.left_out
    addresses, result["rounds"], result["new_operators"] = work_beside_resets(
        worker, resetter, tenant, options.seconds)
    with tenant.inside("rate"):
        result["tflops"] = worker.rate()
    result["resets"] = resetter.count
    if not unprotected:
        driver = Driver()
        primary = driver.primary()
        result["memory"] = sorted({name_of(driver.context_of(address), lease.context, primary)
                                   for address in addresses})
        result["resets_seen"] = sum(other.calls("cuDevicePrimaryCtxReset" + version)
                                    for version in ("", "_v2"))
        result["strikes"] = other.strikes()
        expect(tenant.lease().generation == lease.generation, "the lease was lost")
        expect(result["resets_seen"] > 0 and result["strikes"] > 0, "nothing reached the gate")
        if name == "private":
            expect(result["memory"] == ["its own"], "memory is in " + str(result["memory"]))
        with tenant.inside("end"):
            worker.end()
        other.close()
        tenant.close()
        broker.close()
    result["right"] = True
    # What the attacks print may end in the middle of a line.
    print("\n" + RESULT + json.dumps(result), flush=True)


# ---- All of them --------------------------------------------------------------------------------


def run_child(name, options):
    command = [sys.executable, __file__, "--arrangement", name, "--timeout", str(options.timeout),
               "--multiprocessors", str(options.multiprocessors), "--seconds", str(options.seconds)]
    command += ["--without-torch"] * options.without_torch + ["--records"] * options.records
    try:
        child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", timeout=options.timeout, check=False)
        status, output = child.returncode, child.stdout
    except subprocess.TimeoutExpired as expired:
        status, output = "timeout", (expired.stdout or b"").decode(errors="replace")
    result = {"arrangement": name, "right": False}
    for line in output.splitlines():
        if line.startswith(RESULT):
            result = json.loads(line[len(RESULT):])
    result["status"] = status
    words = [line for line in output.splitlines()
             if line.strip() and not line.startswith(RESULT) and "ATTACK" not in line]
    result["said"] = words[-25:]
    if options.records:
        sys.stderr.write(output)
    return result


def judge(result):
    """What came of it, in words, and whether it should."""
    held = result["right"] and result["status"] == 0
    if result["arrangement"] == "none":
        how = result["said"][-1] if result["said"] else f"ended with status {result['status']}"
        return (f"damage, as it must be: {how}", True) if not held else ("no damage to be seen", False)
    if held:
        return (f"right: {result['rounds']} rounds beside {result['resets']} resets, "
                f"{result['new_operators']} new operators", True)
    if result["right"]:
        return f"right, but the process ended with status {result['status']}", False
    return f"WRONG (status {result['status']})", False


def partition_holds(results):
    """Whether the partition is as much slower as it is smaller."""
    rates = {one["arrangement"]: one for one in results if one.get("tflops")}
    if "private" not in rates or "green" not in rates:
        return True
    whole, part = rates["private"], rates["green"]
    share = part["multiprocessors"] / whole["multiprocessors"]
    ratio = part["tflops"] / whole["tflops"]
    print(f"the partition: {share:.0%} of the multiprocessors, {ratio:.0%} of the rate", flush=True)
    return 0.5 * share < ratio < 1.5 * share


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--without-torch", action="store_true")
    parser.add_argument("--multiprocessors", type=int, default=32, help="of the partition")
    parser.add_argument("--seconds", type=float, default=3, help="of work beside resets, each")
    parser.add_argument("--timeout", type=float, default=150, help="seconds for each arrangement")
    parser.add_argument("--records", action="store_true", help="print what the broker says")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=("private", "green", "shared", "none"))
    parser.add_argument("--arrangement", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arrangement:
        run_arrangement(options.arrangement, options)
        return 0
    results, all_well = [], True
    print(f"{'arrangement':<12} {'SMs':>4} {'TFLOP/s':>8} {'memory':<14} result", flush=True)
    for name in options.only or ("private", "green", "none"):
        result = run_child(name, options)
        verdict, well = judge(result)
        results.append(result)
        all_well = all_well and well
        rate = f"{result['tflops']:.1f}" if result.get("tflops") else "-"
        print(f"{name:<12} {result.get('multiprocessors', '-'):>4} {rate:>8} "
              f"{', '.join(result.get('memory', ['-'])):<14} {verdict}", flush=True)
        if not well:
            print("\n".join("    " + line for line in result["said"]), flush=True)
    all_well = partition_holds(results) and all_well
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
