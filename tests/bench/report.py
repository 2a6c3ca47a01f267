#!/usr/bin/env python3
"""The table and the plots of a results.json: report.py RESULTS.JSON DIRECTORY

The same results give the same bytes. Refuses, with what is wrong, results that are not whole: a
figure that was not measured is said so, never drawn."""

import json
import math
import os
import sys

RESULTS, TABLE = "results.json", "table.md"
FORMAT = 1
PRODUCERS = ("1", "16", "64")
NONE = "–"


class Broken(Exception):
    """Says what is wrong with the results, and where."""


# --- reading ---


def number(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise Broken(f"{where}: {value!r} is no figure")
    return value


def text(value, where):
    if not isinstance(value, str) or not value:
        raise Broken(f"{where}: {value!r} is no text")
    return value


def member(parent, key, where, kind=dict):
    if not isinstance(parent, dict) or key not in parent:
        raise Broken(f"{where}: `{key}` is missing")
    if not isinstance(parent[key], kind):
        raise Broken(f"{where}.{key}: not a {kind.__name__}")
    return parent[key]


def check_system(system, where):
    for key in ("name", "title", "drain_to", "business_row"):
        text(member(system, key, where, object), f"{where}.{key}")
    where = f"system {system['name']}"
    loss = member(system, "loss", where)
    for key in ("documented", "source"):
        text(member(loss, key, where, object), f"{where}.loss.{key}")
    told = [key for key in ("skipped", "failed") if key in system]
    if told:
        text(system[told[0]], f"{where}.{told[0]}")
        if "input" in system or "drain" in system:
            raise Broken(f"{where}: {told[0]}, and yet it has figures")
        return
    for producers, figures in member(system, "input", where).items():
        if producers not in PRODUCERS:
            raise Broken(f"{where}.input: {producers!r} at once is not one of {', '.join(PRODUCERS)}")
        for key in ("events_per_s", "of_limit"):
            number(member(figures, key, f"{where}.input.{producers}", object), f"{where}.input.{producers}.{key}")
    if "drain" in system:
        number(member(system["drain"], "events_per_s", f"{where}.drain", object), f"{where}.drain.events_per_s")
    if "rss" in system:
        for key in ("mb", "pending"):
            number(member(system["rss"], key, f"{where}.rss", object), f"{where}.rss.{key}")


def check(results):
    if member(results, "format", "results", int) != FORMAT:
        raise Broken(f"format {results['format']}: this report reads format {FORMAT}")
    for key in ("kernel", "architecture", "cores", "load", "file_system"):
        member(member(results, "machine", "results"), key, "machine", object)
    number(member(results, "payload_bytes", "results", object), "payload_bytes")
    text(member(results, "date", "results", object), "date")
    systems = member(results, "systems", "results", list)
    if not systems:
        raise Broken("systems: none")
    for index, system in enumerate(systems):
        check_system(system, f"systems[{index}]")
    for name, rates in member(results, "scaling", "results").items():
        for rows, rate in rates.items():
            if not rows.isdigit():
                raise Broken(f"scaling.{name}: {rows!r} is no backlog")
            if not isinstance(rate, str):
                number(rate, f"scaling.{name}.{rows}")
    return results


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return check(json.load(file))
    except OSError as error:
        raise Broken(error.strerror) from error
    except ValueError as error:  # also a text that is no UTF-8
        raise Broken(f"no JSON: {error}") from error


# --- the table ---


def short(value):
    """Three digits that count: 0.71, 12.4, 4,420, 57,000."""
    if value == 0:
        return "0"
    if value >= 10_000:
        return f"{round(value, -len(str(int(value))) + 3):,.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def each_input(system, key):
    cells = [system["input"].get(producers, {}).get(key) for producers in PRODUCERS]
    return " / ".join(NONE if cell is None else short(cell) for cell in cells)


def left(system):
    cut = system["loss"].get("simulated", {"failed": "not tried"})
    return f"{cut['found']:,} of {cut['acked']:,}" if "found" in cut else f"not simulated: {cut['failed']}"


def memory(system):
    rss = system.get("rss")
    return f"{rss['mb']:.1f} ({short(rss['pending'] / 1000)} k)" if rss else NONE


def row(system):
    name = system["title"] + (f" ({system['version']})" if "version" in system else "")
    for key in ("skipped", "failed"):
        if key in system:
            return [name, f"{key}: {system[key]}", *[""] * 6]
    drain = short(system["drain"]["events_per_s"]) if "drain" in system else NONE
    return [name, each_input(system, "of_limit"), each_input(system, "events_per_s"), drain,
            each_input(system, "disk_bytes_per_event"), memory(system), left(system), system["business_row"]]


HEAD = ["system", "in, × the disk's limit, 1 / 16 / 64 at once", "in, events/s", "out, events/s",
        "bytes to the disk per event in", "MB of memory (with so many waiting)", "left after a power cut, of acknowledged",
        "business row in the same commit"]


def line(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def backlog_rows(scaling):
    lengths = sorted({int(rows) for rates in scaling.values() for rows in rates})
    yield ["events/s taken out, first 10,000 of a backlog of", *(f"{rows:,}" for rows in lengths)]
    yield ["---"] * (len(lengths) + 1)
    for name, rates in scaling.items():
        cells = [rates.get(str(rows)) for rows in lengths]
        yield [name, *(NONE if cell is None else cell if isinstance(cell, str) else short(cell) for cell in cells)]


def table(results):
    machine = results["machine"]
    out = (f"Measured on {results['date']} by `make bench`: {machine['architecture']}, {machine['cores']} cores, Linux "
           f"{machine['kernel']}, {machine['file_system']}, load {machine['load']} at the start. Events of "
           f"{results['payload_bytes']} bytes. Raw figures: [{RESULTS}]({RESULTS}).\n\n")
    out += line(HEAD) + line(["---"] * len(HEAD))
    for system in results["systems"]:
        out += line(row(system))
    out += "\n"
    for cells in backlog_rows(results["scaling"]):
        out += line(cells)
    out += "\nOut means, and a power cut may take, by the system's own documentation:\n\n"
    for system in results["systems"]:
        loss = system["loss"]
        out += f"- {system['title']}: {system['drain_to']}. Lost: {loss['documented']} ({loss['source']}).\n"
    extra = results["systems"][0].get("figures", {})
    if extra:
        out += "\nAll figures of `holdfast bench`:\n\n" + line(["figure", "value", "unit", "of limit"]) + line(["---"] * 4)
        for name, figure in extra.items():
            of_limit = figure.get("of_limit")
            out += line([name, short(figure["value"]), figure["unit"], "" if of_limit is None else short(of_limit)])
    return out


BEGIN, END = "<!-- figures of `make bench RECORD=1`: begin -->\n", "<!-- end -->\n"


def readme_table(results):
    rows = [["", "in, × the disk's limit, 1 / 16 / 64 at once", "out, events/s", "bytes to the disk per event in",
             "MB of memory", "left after a power cut, of acknowledged", "business row in the same commit"], ["---"] * 7]
    for system in results["systems"]:
        cells = row(system)
        rows.append(cells[:2] + cells[3:])
    return "".join(map(line, rows))


def with_figures(text_, results):
    """The README's text with the table of these results between its marks."""
    before, begin, rest = text_.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise Broken("the marks around the table are missing")
    return before + begin + readme_table(results) + end + after


# --- the plots ---


def plotter():
    """matplotlib, set so that equal figures give equal files; None if there is none."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "holdfast", "svg.fonttype": "none", "font.size": 9,
                                "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False})
    import matplotlib.pyplot
    return matplotlib.pyplot


COLORS = {"1": "#1b4965", "16": "#5fa8d3", "64": "#f4a259"}


def save(pyplot, figure, path):
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def bars(pyplot, path, title, rows, series, scale):
    """Horizontal bars. rows: (label, {series: value or None}); what is not there has no bar but a dash."""
    figure, axes = pyplot.subplots(figsize=(8.5, 0.9 + 0.55 * len(rows)))
    axes.set_xscale(scale)
    height = 0.8 / len(series)
    for index, name in enumerate(series):
        at = [place + (index - (len(series) - 1) / 2) * height for place in range(len(rows))]
        values = [values.get(name) for _, values in rows]
        drawn = [(y, value) for y, value in zip(at, values) if value]
        axes.barh([y for y, _ in drawn], [value for _, value in drawn], height * 0.9,
                  color=COLORS.get(name, "#1b4965"), label=f"{name} at once" if len(series) > 1 else None)
        for y, value in zip(at, values):
            axes.annotate(NONE if value is None else short(value), (value or 0, y), (3, 0), fontsize=7, va="center",
                          xycoords="data" if value else ("axes fraction", "data"), textcoords="offset points")
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    if len(series) > 1:
        figure.legend(loc="upper right", ncols=len(series), frameon=False, fontsize=8)
    save(pyplot, figure, path)


def lines(pyplot, path, title, scaling):
    figure, axes = pyplot.subplots(figsize=(8.5, 3.6))
    for name, rates in scaling.items():
        points = sorted((int(rows), rate) for rows, rate in rates.items() if not isinstance(rate, str))
        if points:
            axes.plot(*zip(*points), marker="o", label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("events waiting")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    save(pyplot, figure, path)


def label(system):
    cut = system["loss"].get("simulated", {})
    return system["title"] + (f"\nafter a power cut: {left(system)}" if "found" in cut else "")


def input_rows(results, key):
    for system in results["systems"]:
        if system.get("input"):
            yield label(system), {producers: figures.get(key) for producers, figures in system["input"].items()}


def plots(results, folder):
    pyplot = plotter()
    if pyplot is None:
        print("bench: no plots, python3-matplotlib is not installed", file=sys.stderr)
        return
    bars(pyplot, os.path.join(folder, "emit.svg"), "Acknowledged in, × the disk's own syncs per second",
         list(input_rows(results, "of_limit")), PRODUCERS, "log")
    bars(pyplot, os.path.join(folder, "bytes.svg"), "Bytes to the disk per event in",
         list(input_rows(results, "disk_bytes_per_event")), PRODUCERS, "log")
    bars(pyplot, os.path.join(folder, "drain.svg"), "Taken out and acknowledged, events/s (by whom: see the table)",
         [(label(each), {"1": each["drain"]["events_per_s"]}) for each in results["systems"] if "drain" in each],
         ("1",), "linear")
    lines(pyplot, os.path.join(folder, "backlog.svg"), "First 10,000 of a backlog, events/s", results["scaling"])


def write(path, folder):
    """Table and plots; returns the exit status."""
    try:
        results = read(path)
    except Broken as why:
        print(f"report: {path}: {why}", file=sys.stderr)
        return 1
    with open(os.path.join(folder, TABLE), "w", encoding="utf-8") as file:
        file.write(table(results))
    plots(results, folder)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: report.py RESULTS.JSON DIRECTORY")
    sys.exit(write(sys.argv[1], sys.argv[2]))
