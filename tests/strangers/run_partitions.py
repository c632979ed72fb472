#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch and CuPy at once in one process, each a tenant, alone and under ctxb-run, beside resets of the device.

    run_partitions.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py says what happens in which order. Then each of the two gets a partition of the multiprocessors, and so
does a neighbour that keeps its own busy: the second table has the rate of each with and without that neighbour.
Status 0: everything is as it should be.
"""
import dataclasses
import sys

import strangers

PARTITIONS = {"org.pytorch": "green:64", "dev.cupy": "green:32", strangers.NEIGHBOUR_TENANT: "green:32"}
KEPT = 0.8  # of the rate without the neighbour


@dataclasses.dataclass
class TwoFrameworks(strangers.Program):
    def more(self, place):
        """The second table."""
        together = "partitions " + ", ".join(PARTITIONS.values())
        arrangements = [strangers.ALONE, strangers.Arrangement("alone, hog", neighbour="hog")]
        if place.ctxb_run:
            arrangements += [strangers.Arrangement(together, leases=PARTITIONS),
                             strangers.Arrangement(together + ", hog", leases=PARTITIONS, neighbour="hog")]
        runs = {one.name: strangers.run_once(place, one, 9) for one in arrangements}
        frameworks = ("PyTorch", "CuPy")
        rows, is_good = [["arrangement", *(f"{name}, rounds/s" for name in frameworks),
                          *(f"{name}, of without hog" for name in frameworks), "result"]], True
        for name, run in runs.items():
            words, is_right = strangers.judge(self, run, runs["alone"])
            without = runs[name.removesuffix(", hog")]
            rates = run.result["rates"] if run.is_right else {}
            before = without.result["rates"] if without.is_right else {}
            cells = [name, *(f"{rates[one]:.0f}" if one in rates else "-" for one in frameworks)]
            for one in frameworks:
                share = rates[one] / before[one] if name.endswith(", hog") and rates and before.get(one) else None
                cells.append("-" if share is None else f"{share:.2f}")
                if share is not None and run.arrangement.leases and share < KEPT:
                    words = "right, but slowed down by its neighbour"
                    is_right = is_right and not place.options.rates_only
            is_good = is_good and is_right
            rows.append([*cells, words])
        return ["", "With a partition each, and a neighbour that fills the device with kernels (hog):", "",
                *strangers.table(rows)], is_good


PROGRAM = TwoFrameworks(
    name="partitions", title="PyTorch and CuPy at once, each a tenant", script="two_frameworks.py",
    modules=(("torch", "torch"), ("cupy", "cupy-cuda13x[ctk]")),
    tenants={"org.pytorch": ("*/torch/lib/*.so*", "*/triton/*.so*"), "dev.cupy": ("*/cupy*/*.so*",)})

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
