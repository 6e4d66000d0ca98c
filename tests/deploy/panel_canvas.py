"""The paper that panel_drawing.py draws on: sizes, colours, numbers with units, axes. Needs matplotlib."""
import math
import re

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from PIL import Image  # noqa: E402  (matplotlib needs it, too)

COLUMN_PX, ROW_PX, GAP_PX, LINE_PX = 72, 38, 8, 15  # Grafana's grid is 24 columns wide
CANVAS, PANEL, TEXT, BLUE, FAINT = "#111217", "#181b1f", "#d8d9da", "#6e9fff", "#3a3d44"
PALETTE = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ca95e5", "#96d98d", "#ffcb7d")
COLOURS = {"green": "#73bf69", "blue": "#5794f2", "purple": "#b877d9", "orange": "#ff9830", "red": "#f2495c"}
SCALES = {"s": ((60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs")),
          "bytes": ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B"))}
SHORT = ((1e9, " Bil"), (1e6, " Mil"), (1e3, " K"), (1, ""))


def format_value(value, unit):
    if not math.isfinite(value):
        return "+Inf" if value > 0 else "NaN"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    scales = SCALES.get(unit, SHORT)
    scale, suffix = next(((s, name) for s, name in scales if abs(value) >= s), scales[-1] if value else (1, ""))
    number = value / scale
    suffix += {"reqps": " req/s"}.get(unit, "")
    return (f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}") + suffix


def name_of(legend, labels):
    if legend:
        return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found.group(1), ""), legend)
    return "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


class Canvas:
    """A figure in pixels, y downwards."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.figure = pyplot.figure(figsize=(width / 100, height / 100), dpi=100, facecolor=CANVAS)

    def axes(self, x, y, w, h, framed=True):
        axes = self.figure.add_axes((x / self.width, 1 - (y + h) / self.height, w / self.width, h / self.height), facecolor=PANEL)
        axes.tick_params(colors=TEXT, labelsize=7.5, length=0)
        for spine in axes.spines.values():
            spine.set_color(FAINT)
        if not framed:
            axes.set(xlim=(0, w), ylim=(h, 0), xticks=(), yticks=())
        return axes

    def save(self, path):
        """As PNG with a palette, a third of the bytes; this method keeps rare colours."""
        self.figure.savefig(path, facecolor=CANVAS)
        pyplot.close(self.figure)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


def set_time(axes, span):
    axes.set_xlim(*span)
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator(range(span[0], span[1] + 1, 10)))
    axes.xaxis.set_major_formatter(lambda t, _: f"{t - span[0]:.0f} s")
