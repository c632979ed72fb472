#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables and a picture of what memory and other neighbours cost.

    bench_report.py neighbours [--seconds 60] [--only REGEX] [--json FILE] [--picture FILE.svg]
    bench_report.py memory [--only REGEX] [--json FILE]
    bench_report.py show FILE.json ... [--picture FILE.svg]

Stands in bin/ of a build or a bundle. "neighbours" runs bench_qos in partitions, beside each neighbour for so many
seconds. "memory" runs bench_memory. Both print a Markdown table. "show" makes the table of files that the two wrote.
Several files of bench_qos make one table, so that a long run can have parts. Status 1: a case failed. A figure that
misses its aim is no failure. CTXBROKER_DRIVER chooses the driver.
"""
import argparse
import html
import json
import math
import pathlib
import subprocess
import sys
import tempfile

BIN = pathlib.Path(__file__).resolve().parent
AIM = 1.25            # p99.9 beside a neighbour, at most this many times p99.9 alone
BLOCK = 64 / 0.048    # us: 64 frames at 48 kHz


def line(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(head, rows):
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def failures(cases):
    return [f"{one['name']}: {one.get('error_message', 'failed')}" for one in cases if one.get("error_occurred")]


# ---- bench_qos ------------------------------------------------------------------------------------

PARTS = (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))


def series_of(case):
    return (case["arrangement"], case["memory"] if case["takes_memory"] else "")


def title_of(series, with_arrangement):
    arrangement, memory = series
    words = [arrangement] if with_arrangement else []
    words.append({"": "takes no memory in its loop", "raw": "raw driver memory"}.get(memory, f'"memory": "{memory}"'))
    return ", ".join(words)


def print_neighbours(context, cases):
    good = [one for one in cases if not one.get("error_occurred")]
    with_arrangement = len({one["arrangement"] for one in good}) > 1
    rows = []
    for one in good:
        name = one["load"].replace("_", " ")
        did = f"{one['neighbour_did']:,}"
        rows.append([*([one["arrangement"]] if with_arrangement else []), name,
                     one["memory"] if one["takes_memory"] else "-", f"{one['iterations']:,}",
                     " / ".join(f"{one['solo_' + key]:.1f}" for key, _ in PARTS),
                     *(f"{one[key]:,.1f}" for key, _ in PARTS), f"{one['worst']:,.0f}",
                     *(f"{one[key + '_of_solo']:,.2f}" for key, _ in PARTS), did,
                     f"{one['neighbour_kept_bytes'] / 2**20:.1f}"])
    print(f"{context['device']}, driver {context['driver']}, gate {context['gate']}, {context['date']}, "
          f"{context['seconds']:g} s for each case. Times in us.\n")
    print(table([*(["arrangement"] if with_arrangement else []), "neighbour", "memory", "blocks",
                 "solo p50 / p99 / p99.9", "p50", "p99", "p99.9", "worst",
                 *(f"{name} / solo" for _, name in PARTS), "neighbour did", "neighbour kept, MiB"], rows))
    slow = [f"{one['name']} ({one['p999_of_solo']:,.2f})" for one in good if one["p999_of_solo"] > AIM]
    print(f"\nThe aim is a p99.9 of at most {AIM} times solo. "
          + (f"It is missed by {', '.join(slow)}." if slow else "All cases meet it."))


COLOURS = ("#1b7837", "#d73027", "#4575b4", "#f46d43", "#762a83", "#66bd63", "#888888", "#8c510a", "#35978f")


def draw_neighbours(context, cases, path):
    """A bar from p50 to p99.9 for each case, and a dash at the aim: its own p99.9 alone, times AIM."""
    good = [one for one in cases if not one.get("error_occurred")]
    loads = list(dict.fromkeys(one["load"] for one in good))
    series = list(dict.fromkeys(series_of(one) for one in good))
    with_arrangement = len({arrangement for arrangement, _ in series}) > 1
    width, height, left, right, top = 1210, 572, 76, 1194, 40 + 16 * math.ceil(len(series) / 2)
    bottom = height - 64
    tops = [one["p999"] for one in good] + [BLOCK]
    low = math.floor(math.log10(min(one["p50"] for one in good)))
    high = math.ceil(math.log10(max(tops) * 1.2))

    def y(value):
        return bottom - (math.log10(value) - low) / (high - low) * (bottom - top)
    shapes = []

    def text(x, at, words, anchor="middle", colour="#222222", more=""):
        shapes.append(f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="{anchor}" fill="{colour}"{more}>'
                      f"{html.escape(words)}</text>")

    def path_of(x, at, to_x, to_y, colour, across, more=""):
        shapes.append(f'<path d="M{x:.1f} {at:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}" '
                      f'stroke-width="{across}"{more}/>')
    text((left + right) / 2, 20, f"Guard, launch and wait of a 64-frame audio plug-in, {context['device']}")
    for power in range(low, high + 1):
        path_of(left, y(10**power), right, y(10**power), "#dddddd", 1)
        text(left - 8, y(10**power) + 4, f"{10**power:,}" if power >= 0 else f"{10.0**power:g}", "end")
    middle = (top + bottom) / 2
    text(18, middle, "latency in microseconds: p50 to p99.9", more=f' transform="rotate(-90 18 {middle:.1f})"')
    text((left + right) / 2, height - 12, "neighbour")
    path_of(left, y(BLOCK), right, y(BLOCK), "#222222", 1, ' stroke-dasharray="6 4"')
    text(right - 4, y(BLOCK) - 5, f"64 frames at 48 kHz: {BLOCK:,.0f}", "end")
    column = (right - left) / len(loads)
    for number, load in enumerate(loads):
        centre = left + (number + 0.5) * column
        text(centre, bottom + 20, load.replace("_", " "))
        here = [one for one in good if one["load"] == load]
        step = min(16, column / (len(here) + 1))
        for place, one in enumerate(here):
            x, colour = centre + (place - (len(here) - 1) / 2) * step, COLOURS[series.index(series_of(one)) % len(COLOURS)]
            path_of(x, y(one["p50"]), x, y(one["p999"]), colour, 4)
            path_of(x - 5, y(one["p999"]), x + 5, y(one["p999"]), colour, 3)
            aim = y(one["solo_p999"] * AIM)
            path_of(x - 7, aim, x + 7, aim, "#222222", 1)
    for number, one in enumerate(series):
        x, at = left + 10 + (number % 2) * 420, 44 + 16 * (number // 2)
        path_of(x, at - 4, x + 18, at - 4, COLOURS[number % len(COLOURS)], 4)
        text(x + 26, at, title_of(one, with_arrangement), "start")
    path_of(right - 292, 40, right - 278, 40, "#222222", 1)
    text(right - 270, 44, f"the aim: {AIM} times p99.9 without a neighbour", "start")
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                    f'height="{height}" font-family="Helvetica,Arial,sans-serif" font-size="12">'
                    f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(shapes) + "\n</svg>\n")


# ---- bench_memory ---------------------------------------------------------------------------------


def print_memory(context, cases):
    found = {}
    for one in cases:
        if not one.get("error_occurred"):
            kind, size, source, lease, place = one["name"].split("/")[:5]
            found.setdefault((kind, size, lease, place), {})[source] = one

    def halves(one, prefix=""):
        return f"{one[prefix + 'alloc_ns'] / 1e3:,.1f} + {one[prefix + 'free_ns'] / 1e3:,.1f}"
    rows = []
    for (kind, size, lease, place), by_source in found.items():
        cells = [kind, size, lease, place, halves(next(iter(by_source.values())), "raw_")]
        for source in ("driver", "pool"):
            one = by_source.get(source)
            cells.append(f"{halves(one)} ({one['ratio']:.2f})" if one else "-")
        cells.append(f"{by_source['pool']['kept'] / 2**20:,.1f}" if "pool" in by_source else "-")
        rows.append(cells)
    print(f"{context['device']}, driver {context['driver']}, gate {context['gate']}, {context['date']}. "
          "Alloc + free in us; in brackets, both together as a multiple of the raw driver's.\n")
    print(table(["memory", "size", "lease", "neighbour", "raw driver", 'gate, "memory": "driver"',
                 'gate, "memory": "pool"', "kept by the pool, MiB"], rows))


# ---- Both -----------------------------------------------------------------------------------------


def show(files, picture):
    documents = [json.loads(path.read_text()) for path in files]
    cases = [one for document in documents for one in document["benchmarks"]]
    context = documents[0]["context"]
    wrong = failures(cases)
    if len(wrong) < len(cases):
        if any("load" in one for one in cases):
            print_neighbours(context, cases)
            if picture:
                draw_neighbours(context, cases, picture)
        else:
            print_memory(context, cases)
    for words in wrong:
        print(f"FAILED: {words}")
    return 1 if wrong or not cases else 0


def run_and_show(command, file, picture=None):
    """Runs a benchmark program. Its own table goes to standard error."""
    status = subprocess.run([str(one) for one in command], stdout=sys.stderr, check=False).returncode
    if not file.exists():
        print(f"{command[0].name} ended with {status}", file=sys.stderr)
        return 1
    return max(show([file], picture), 1 if status else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    neighbours = commands.add_parser("neighbours", help="an audio plug-in beside each neighbour")
    neighbours.add_argument("--only", default="^partitions/", help='regular expression over "arrangement/load/memory"')
    neighbours.add_argument("--seconds", type=float, default=60, help="under load, for each case")
    neighbours.add_argument("--slices", type=int, default=3, help="parts of it, with silence between")
    neighbours.add_argument("--quick", action="store_true", help="tiny work, for a smoke test")
    memory = commands.add_parser("memory", help="alloc and free by size and kind")
    memory.add_argument("--only", default=".", help="regular expression over the benchmarks' names")
    memory.add_argument("--quick", action="store_true", help="tiny work, for a smoke test")
    shown = commands.add_parser("show", help="files that bench_qos or bench_memory wrote")
    shown.add_argument("files", nargs="+", type=pathlib.Path)
    for one in (neighbours, memory):
        one.add_argument("--json", type=pathlib.Path, help="keep the results in this file")
    for one in (neighbours, shown):
        one.add_argument("--picture", type=pathlib.Path, help="an SVG file to be written")
    return parser.parse_args()


def main():
    options = arguments()
    if options.command == "show":
        return show(options.files, options.picture)
    quick = ["--quick"] if options.quick else []
    with tempfile.TemporaryDirectory() as folder:
        file = options.json or pathlib.Path(folder) / "results.json"
        file.unlink(missing_ok=True)  # of an earlier run
        if options.command == "neighbours":
            return run_and_show([BIN / "bench_qos", "--only", options.only, "--seconds", options.seconds,
                                 "--slices", options.slices, "--json", file, *quick], file, options.picture)
        return run_and_show([BIN / "bench_memory", f"--benchmark_filter={options.only}", f"--benchmark_out={file}",
                             "--benchmark_out_format=json", *quick], file)


if __name__ == "__main__":
    sys.exit(main())
