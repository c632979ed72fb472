#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's multiprocessing, which gives tensors on the device to another process, alone and under ctxb-run.

    run_pytorch_ipc.py [--ctxb-run FILE] [--packages FOLDER] [--out FILE]

strangers.py describes the order of the runs, but nothing resets the device here. The second table has a row for each
lease and each source of the tenant's memory. README.md describes the expected results. Status 0: all results are as
expected.
"""
import sys

import strangers

LINE = '"memory": "driver"'  # of a policy


class PyTorchIpc(strangers.Program):
    def more(self, place):
        """The second table."""
        rows, all_good = [["lease", "memory", "first tensor", f"record names {LINE}", "rate", "result"]], True
        for lease in place.options.leases if place.ctxb_run else ():
            for memory in ("driver", "pool"):
                arrangement = strangers.Arrangement(f"{lease}, {memory}", lease=lease, memory=memory)
                run = strangers.run_once(place, arrangement)
                words, is_good = strangers.judge(self, run, run)
                result = run.result or {}
                # In a private lease, all memory is the driver's.
                wanted = memory == "pool" and lease != "private"
                is_told = any(LINE in text for text in run.records)
                if is_good and (result["refused"] != wanted or is_told != wanted):
                    expected = "refused, with that record" if wanted else "sent, without that record"
                    words, is_good = f"WRONG: should be {expected}", False
                all_good = all_good and is_good
                rows.append([lease, memory, "refused" if result.get("refused") else "sent" if result else "-",
                             "yes" if is_told else "no", f"{result['rate']:.0f} {result['unit']}" if result else "-",
                             words])
        return ["", "By where the tenant's memory comes from:", "", *strangers.table(rows)], all_good


PROGRAM = PyTorchIpc(
    name="pytorch_ipc", title="PyTorch: tensors for another process", script="pytorch_ipc.py",
    modules=(("torch", "torch"), ("numpy", "numpy")), tenants={"org.pytorch": ("*/torch/lib/*.so*",)},
    beside_resets=False)

if __name__ == "__main__":
    sys.exit(strangers.main(PROGRAM))
