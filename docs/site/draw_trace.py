#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws some jobs of a timeline as a picture: draw_trace.py TRACE.json OUT.svg [--jobs 2]

It is for documents, which cannot show Perfetto. Guards without a name are left out.
"""
import argparse
import html
import json

colours = {"job": "#b0bec5", "guard": "#cfd8dc", "call": "#ffe0b2", "launch": "#80cbc4", "copy": "#90caf9",
           "wait": "#ef9a9a", "device": "#4db6ac", "load": "#ce93d8"}
width, left, row, character = 1000, 190, 17, 5.6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--jobs", type=int, default=2)
    wanted = parser.parse_args()
    events = json.load(open(wanted.trace))["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    processes = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    spans = [one for one in events if one["ph"] == "X" and one["cat"] in colours]
    jobs = sorted((one for one in spans if one["cat"] == "job"), key=lambda one: one["ts"])
    # From the middle, the jobs that took least: nothing else ran then.
    choices = range(len(jobs) // 4, len(jobs) - wanted.jobs)
    first = min(choices, key=lambda i: jobs[i + wanted.jobs - 1]["ts"] + jobs[i + wanted.jobs - 1]["dur"] - jobs[i]["ts"])
    begin, last = jobs[first]["ts"], jobs[first + wanted.jobs - 1]
    end = last["ts"] + last["dur"]
    margin = (end - begin) * 0.03
    begin, end = begin - margin, end + margin
    scale = (width - left - 10) / (end - begin)

    shapes, y = [], 34

    def text(x, at, words, colour="#222222"):
        shapes.append(f'<text x="{x:.1f}" y="{at}" fill="{colour}">{html.escape(words)}</text>')
    tracks = {}
    for one in spans:
        if one["ts"] < end and one["ts"] + one["dur"] > begin:
            tracks.setdefault((one["pid"], one["tid"]), []).append(one)
    for track in sorted(tracks):
        open_spans, deepest = [], 0
        on_device = processes.get(track[0], "").endswith("on the device")
        text(6, y + 12, processes[track[0]] if on_device else "thread " + names.get(track, ""))
        for one in sorted(tracks[track], key=lambda one: (one["ts"], -one["dur"])):
            open_spans = [other for other in open_spans if other > one["ts"]]
            depth = len(open_spans)
            open_spans.append(one["ts"] + one["dur"])
            if one["name"] == "guard":
                open_spans.pop()
                continue
            deepest = max(deepest, depth)
            x = left + max(one["ts"] - begin, 0) * scale
            across = left + min(one["ts"] + one["dur"] - begin, end - begin) * scale - x
            top = y + depth * row
            shapes.append(f'<rect x="{x:.1f}" y="{top}" width="{max(across, 0.8):.1f}" height="{row - 2}" '
                          f'fill="{colours[one["cat"]]}"/>')
            letters = int((across - 4) / character)
            if letters >= min(4, len(one["name"])):
                text(x + 2, top + 11, one["name"][:letters])
        y += (deepest + 1) * row + 12
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10000, 100000) if step * scale > 70)
    for tick in range(int((end - begin) / step) + 1):
        x = left + tick * step * scale
        shapes.insert(0, f'<path d="M{x:.1f} 24V{y}" stroke="#e0e0e0"/>')
        if x < width - 50:
            text(x + 2, 16, f"{tick * step} us", "#666666")
    with open(wanted.picture, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
                   'font-family="Helvetica,Arial,sans-serif" font-size="10">'
                   f'<rect width="{width}" height="{y}" fill="white"/>\n' + "\n".join(shapes) + "\n</svg>\n")


main()
