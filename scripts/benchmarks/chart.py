"""Draws the tables of `speed.py`, `training.py` and `serve.py` as charts.

Each is drawn twice, for light pages and, as NAME-dark.png, for dark ones, without a background. A
page shows 700 pixels, where the smallest text is 8 points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

WIDTH = 7.3  # inches
DOTS = 200  # of an inch: twice what a page shows


@dataclass(frozen=True)
class Theme:
    """The colors of a chart."""

    text: str
    ours: str
    ours_other: str
    peers: str
    greys: dict[str, str]
    """Of the forms that are lines beside one another."""


LIGHT = Theme(
    "#222222", "#1769aa", "#8fbbe0", "#b8c4ce",
    {"eager": "#222222", "torch.compile": "#999999", "AOTInductor": "#666666"},
)  # fmt: skip
DARK = Theme(
    "#dddddd", "#5aa9e6", "#2f6690", "#5c6773",
    {"eager": "#eeeeee", "torch.compile": "#888888", "AOTInductor": "#b5b5b5"},
)  # fmt: skip


def _in_each_theme(path: Path, draw: Callable[[Theme], Figure]) -> None:
    names = ("text", "axes.label", "xtick", "ytick")
    for theme, name in ((LIGHT, path.name), (DARK, f"{path.stem}-dark{path.suffix}")):
        colors = {
            f"{each}color" if each == "axes.label" else f"{each}.color": theme.text
            for each in names
        }
        with pyplot.rc_context({**colors, "axes.edgecolor": theme.text}):
            figure = draw(theme)
            figure.savefig(path.with_name(name), dpi=DOTS, transparent=True)
            pyplot.close(figure)


def draw(results: dict[str, dict[str, float | str]], limit: str, path: Path) -> None:
    """One panel a model: bars of how many times as fast as eager autocast each form runs.

    Args:
        results: by model and form; a text where the form fails.
        limit: the form that is drawn as a line where it lies inside the panel.
        path: of the PNG.
    """
    _in_each_theme(path, lambda theme: _bars(results, limit, theme))


def _bars(results: dict[str, dict[str, float | str]], limit: str, theme: Theme) -> Figure:
    columns = 2
    rows = -(-len(results) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(WIDTH, 0.4 + 2.3 * rows), layout="constrained", squeeze=False
    )
    for axis in axes.flat[len(results) :]:
        axis.set_axis_off()
    for axis, (model, forms) in zip(axes.flat, results.items(), strict=False):
        names = [form for form in forms if form != limit]
        values = [forms[name] for name in names]
        lengths = [value if isinstance(value, float) else 0.0 for value in values]
        colors = [theme.ours if name.startswith("jit_amp") else theme.peers for name in names]
        axis.barh(names, lengths, color=colors)
        for y, value in enumerate(values):
            text = f"{value:.2f}" if isinstance(value, float) else "fails"
            axis.text(lengths[y], y, " " + text, va="center", fontsize=8)
        widest = max(lengths) * 1.18
        most = forms[limit]
        if isinstance(most, float) and most < 1.6 * widest:
            widest = max(widest, most * 1.08)
            axis.axvline(most, color=theme.text, linestyle="--", linewidth=1)
            axis.text(most, -0.75, limit, ha="center", fontsize=8)
        axis.set_xlim(0, widest)
        axis.invert_yaxis()
        axis.set_title(model, fontsize=10, loc="left", pad=14)
        axis.tick_params(axis="both", labelsize=8, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
        if axis not in axes[:, 0]:
            axis.set_yticklabels([])
    figure.supxlabel("times as fast as eager autocast", fontsize=9)
    return figure


def draw_few(results: dict[str, dict[str, float | str]], path: Path) -> None:
    """Three of the forms, for a phone's screen: all models in one panel.

    Args:
        results: as `draw` takes them.
        path: of the PNG.
    """
    _in_each_theme(path, lambda theme: _few_bars(results, theme))


def _few_bars(results: dict[str, dict[str, float | str]], theme: Theme) -> Figure:
    few = {
        "jit_amp.freeze, server": theme.ours,
        "jit_amp.freeze": theme.ours_other,
        "torch.compile, freezing": theme.peers,
    }
    figure, axis = pyplot.subplots(figsize=(4.4, 0.9 + 0.52 * len(results)), layout="constrained")
    height = 0.26
    for row, forms in enumerate(results.values()):
        for number, (form, color) in enumerate(few.items()):
            value = forms[form]
            length = value if isinstance(value, float) else 0.0
            y = row + (number - 1) * height
            axis.barh(y, length, height, color=color, label=form if row == 0 else None)
            text = f"{value:.2f}" if isinstance(value, float) else "fails"
            axis.text(length, y, " " + text, va="center", fontsize=7.5)
    axis.axvline(1.0, color=theme.text, linestyle="--", linewidth=1)
    axis.set_yticks(range(len(results)), [name.replace(", ", ",\n", 1) for name in results])
    axis.invert_yaxis()
    axis.margins(x=0.12, y=0.01)
    axis.tick_params(axis="both", labelsize=8, length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.set_xlabel("times as fast as eager autocast (the dashed line)", fontsize=8)
    figure.legend(loc="outside upper center", ncols=3, fontsize=7, frameon=False, columnspacing=1.2)
    return figure


def draw_steps(results: dict[str, dict[str, tuple[float, float, float, float] | str]], path: Path):
    """One panel a model: what a training step takes in each form, eager autocast's being 1.

    Args:
        results: by model and form: the lower quartile, median and upper quartile of the time, and
            the memory; a text where the form fails.
        path: of the PNG.
    """
    _in_each_theme(path, lambda theme: _steps(results, theme))


def _steps(
    results: dict[str, dict[str, tuple[float, float, float, float] | str]], theme: Theme
) -> Figure:
    figure, axes = pyplot.subplots(
        2, -(-len(results) // 2), figsize=(WIDTH, 4.8), layout="constrained", squeeze=False,
        sharex=True,
    )  # fmt: skip
    for axis in axes.flat[len(results) :]:
        axis.set_axis_off()
    for axis, (model, forms) in zip(axes.flat, results.items(), strict=False):
        for y, (form, found) in enumerate(forms.items()):
            color = theme.ours if form.startswith("jit_amp") else theme.peers
            if isinstance(found, str):
                axis.text(0.02, y, "fails", va="center", fontsize=8)
                continue
            low, median, high, memory = found
            axis.barh(y, median, color=color)
            axis.plot([low, high], [y, y], color=theme.text, linewidth=1)
            text = f"  {median:.2f}, memory {memory:.2f}"
            axis.text(max(median, high), y, text, va="center", fontsize=8)
        axis.axvline(1.0, color=theme.text, linestyle="--", linewidth=1)
        axis.set_yticks(range(len(forms)), list(forms))
        axis.invert_yaxis()
        axis.set_title(model, fontsize=10, loc="left")
        axis.tick_params(axis="both", labelsize=8, length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.margins(x=0.75)
        if axis not in axes[:, 0]:
            axis.set_yticklabels([])
    figure.supxlabel("time of a step, eager autocast = 1; the lines are quartiles", fontsize=9)
    return figure


def draw_rates(model: str, results: dict[str, dict[int, float]], path: Path) -> None:
    """Requests a second over the number of threads, a line a form.

    Args:
        model: the title.
        results: by form and number of threads.
        path: of the PNG.
    """
    _in_each_theme(path, lambda theme: _lines(model, results, theme))


def _lines(model: str, results: dict[str, dict[int, float]], theme: Theme) -> Figure:
    ways = list(dict.fromkeys(form.rsplit(", ", 1)[1] for form in results))
    threads = sorted({n for rates in results.values() for n in rates})
    figure, axes = pyplot.subplots(
        1, len(ways), figsize=(WIDTH, 3.4), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    for axis, way in zip(axes[0], ways, strict=True):
        lines = {form.rsplit(", ", 1)[0]: x for form, x in results.items() if form.endswith(way)}
        ends: list[float] = []
        top = max(max(rates.values()) for rates in results.values())
        for form, rates in sorted(lines.items(), key=lambda item: list(item[1].values())[-1]):
            ours = form.startswith("jit_amp")
            color = theme.ours if ours else theme.greys[form]
            color = theme.ours_other if form.endswith("portable") else color
            axis.plot(list(rates), list(rates.values()), marker="o", color=color, linewidth=2)
            ends.append(max(list(rates.values())[-1], (ends or [-top])[-1] + top / 18))
            axis.annotate(
                form, (threads[-1], ends[-1]), (8, 0), textcoords="offset points", va="center",
                fontsize=8, color=color,
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xlim(threads[0] * 0.9, threads[-1] * 4.5)
        axis.set_xticks(threads, threads)
        axis.set_ylim(0, 1.05 * top)
        axis.set_title(f"{model}, batch 1, called from {way}", fontsize=10, loc="left")
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("requests a second", fontsize=9)
    figure.supxlabel("threads that call", fontsize=9)
    return figure
