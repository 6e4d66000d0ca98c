"""Draws a Grafana dashboard from the answers to its queries, close enough to Grafana's own picture to be judged by eye.

Known: the panel types and options that make_dashboards.py writes. Needs matplotlib.
"""
import math

from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.ticker import MaxNLocator

from panel_canvas import (BLUE, COLOURS, COLUMN_PX, FAINT, GAP_PX, LINE_PX, PALETTE, ROW_PX, TEXT, Canvas, format_value, name_of,
                          set_time)

HEAT = LinearSegmentedColormap.from_list("heat", ("#4a1d04", "#d9480f", "#fdae6b", "#fff5eb"))


def overrides(panel):
    """What the panel says of a query's lines by refId, or of one line by its name: {refId or name: {property: value}}."""
    return {o["matcher"]["options"]: {p["id"]: p["value"] for p in o["properties"]} for o in panel["fieldConfig"]["overrides"]}


def draw_legend(canvas, box, panel, lines):
    """`lines`: (name, colour, values). Returns the height taken: a third of the panel at most, as Grafana scrolls from there on."""
    x, y, w, h = box
    options, unit = panel["options"]["legend"], panel["fieldConfig"]["defaults"]["unit"]
    is_list = options["displayMode"] == "list"
    rows, at = [[]], 0
    for line in lines:
        width = 40 + 6.6 * len(line[0]) if is_list else w
        if rows[-1] and at + width > w:
            rows, at = rows + [[]], 0
        rows[-1].append((at, *line))
        at += width
    num_shown = min(len(rows), int(0.35 * h / LINE_PX) - 1)
    height = LINE_PX * (num_shown + 1 + (num_shown < len(rows)))
    axes = canvas.axes(x + 10, y + h - height, w - 20, height, framed=False)
    axes.axis("off")
    for i, row in enumerate(rows[:num_shown]):
        middle = LINE_PX * (i + 1) + 3
        for at, name, colour, values in row:
            axes.plot((at, at + 12), (middle, middle), color=colour, linewidth=2)
            axes.text(at + 18, middle, name, color=TEXT, fontsize=8, va="center")
            for right, value in () if is_list else ((w - 100, values[-1]), (w - 24, max(values))):
                axes.text(right, middle, format_value(value, unit), color=TEXT, fontsize=8, va="center", ha="right")
    for right, heading in () if is_list else ((w - 100, "Last *"), (w - 24, "Max")):
        axes.text(right, 3, heading, color=BLUE, fontsize=7, va="center", ha="right")
    if num_shown < len(rows):
        axes.text(18, height - 10, f"({len(rows) - num_shown} more lines: scroll)", color=BLUE, fontsize=7, va="center")
    return height


def draw_graph(canvas, box, panel, answers, span):
    x, y, w, h = box
    defaults, own = panel["fieldConfig"]["defaults"], overrides(panel)
    lines = []  # name, colour, values, properties
    for target, series in answers:
        for labels, values in series:
            name = name_of(target["legendFormat"], labels)
            properties = {**{f"custom.{k}": v for k, v in defaults["custom"].items()}, **own.get(target["refId"], {}), **own.get(name, {})}
            colour = COLOURS.get(properties.get("color", {}).get("fixedColor"), PALETTE[len(lines) % len(PALETTE)])
            lines.append((name, colour, {t: v for t, v in values if not math.isnan(v)} or {0: math.nan}, properties))
    below = draw_legend(canvas, box, panel, [(name, colour, list(values.values())) for name, colour, values, _ in lines])
    axes = canvas.axes(x + 62, y + 28, w - 80, h - 50 - below)
    times = range(span[0], span[1] + 1)
    bottom = [0] * len(times)
    for name, colour, values, properties in lines:
        heights = [values.get(t, math.nan) for t in times]
        if properties["custom.stacking"]["mode"] == "normal":
            top = [b + values.get(t, 0) for b, t in zip(bottom, times)]
            axes.fill_between(times, bottom, top, color=colour, alpha=properties["custom.fillOpacity"] / 100, linewidth=0)
            bottom = heights = top
        axes.plot(times, heights, color=colour, linewidth=properties["custom.lineWidth"],
                  linestyle="--" if "custom.lineStyle" in properties else "-")
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.02 * defaults["custom"].get("axisSoftMax", 0)))
    most = axes.get_ylim()[1]
    scale = 1024 ** int(math.log(max(1, most), 1024)) if defaults["unit"] == "bytes" else 1
    locator = MaxNLocator(5, steps=(1, 2, 2.5, 5, 10), integer=defaults.get("decimals") == 0)
    axes.set_yticks([scale * tick for tick in locator.tick_values(0, most / scale) if scale * tick <= most])
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value, defaults["unit"]))
    set_time(axes, span)


def draw_heatmap(canvas, box, panel, answers, span):
    """Grafana's format "heatmap": the buckets of `le`, each less the one below."""
    x, y, w, h = box
    (_, series), = answers
    buckets = sorted(((float(labels["le"]), dict(values)) for labels, values in series), key=lambda bucket: bucket[0])
    times = range(span[0], span[1] + 1)
    rows, below = [], {}
    for _, values in buckets:
        rows.append([max(0, values.get(t, 0) - below.get(t, 0)) or math.nan for t in times])
        below = values
    axes = canvas.axes(x + 62, y + 28, w - 80, h - 56)
    mesh = axes.pcolormesh(times, range(len(rows)), rows, cmap=HEAT, shading="nearest", norm=PowerNorm(0.5, vmin=0))
    axes.set_yticks([i + 0.5 for i in range(len(rows))][::2],
                    [format_value(le, panel["options"]["yAxis"]["unit"]) for le, _ in buckets][::2])
    set_time(axes, span)
    bar = canvas.figure.colorbar(mesh, cax=canvas.axes(x + w - 150, y + 10, 130, 6), orientation="horizontal")
    bar.ax.tick_params(colors=TEXT, labelsize=6, length=0, pad=1)


def draw_stat(canvas, box, panel, answers, span):
    del span
    x, y, w, h = box
    defaults = panel["fieldConfig"]["defaults"]
    (_, ((_, value),)), = answers
    colours = [s["color"] for s in defaults["thresholds"]["steps"] if s["value"] is None or value >= s["value"]]
    axes = canvas.axes(x, y + 24, w, h - 24, framed=False)
    axes.axis("off")
    axes.text(w / 2, (h - 24) / 2, format_value(value, defaults["unit"]), fontsize=26, ha="center", va="center",
              color=COLOURS[colours[-1]])


def draw_bars(canvas, box, panel, answers, span):
    del span
    x, y, w, h = box
    (target, series), = answers
    most = max(value for _, value in series) or 1
    axes = canvas.axes(x + 10, y + 30, w - 20, h - 40, framed=False)
    axes.axis("off")
    step = (h - 40) / len(series)
    names = [name_of(target["legendFormat"], labels) for labels, _ in series]
    left = 10 + 7 * max(map(len, names))
    for i, (name, (_, value)) in enumerate(zip(names, series)):
        middle = (i + 0.5) * step
        axes.barh(middle, (w - 110 - left) * value / most, left=left, height=0.7 * step, color=COLOURS["green"])
        axes.text(left - 8, middle, name, color=TEXT, fontsize=9, ha="right", va="center")
        axes.text(w - 30, middle, format_value(value, panel["fieldConfig"]["defaults"]["unit"]), color=TEXT, fontsize=9,
                  ha="right", va="center")


def table_of(panel, answers):
    """Headings and rows, as Grafana's transformations "merge" and "organize" make them."""
    organize, = (t["options"] for t in panel["transformations"] if t["id"] == "organize")
    several = any(t["id"] == "merge" for t in panel["transformations"])
    columns, rows = [], {}
    for target, series in answers:
        value_name = f"Value #{target['refId']}" if several else "Value"
        for labels, value in series:
            rows.setdefault(tuple(sorted(labels.items())), {}).update({**labels, value_name: value})
            columns += [name for name in (*labels, value_name) if name not in columns]
    columns = [name for name in columns if not organize["excludeByName"].get(name)]
    order = organize.get("indexByName", {})
    columns.sort(key=lambda name: order.get(name, len(order)))
    headings = [organize["renameByName"].get(name, name) for name in columns]
    units = {o["matcher"]["options"]: p["value"] for o in panel["fieldConfig"]["overrides"]
             for p in o["properties"] if p["id"] == "unit"}
    cell = lambda value, heading: value if isinstance(value, str) else format_value(value, units.get(heading, "short"))  # noqa: E731
    return headings, [[cell(row[c], heading) if c in row else "" for c, heading in zip(columns, headings)] for row in rows.values()]


def draw_table(canvas, box, panel, answers, span):
    del span
    x, y, w, h = box
    headings, rows = table_of(panel, answers)
    axes = canvas.axes(x + 10, y + 30, w - 20, h - 40, framed=False)
    axes.axis("off")
    sizes = [max(len(text) for text in column) + 3 for column in zip(headings, *rows)]
    for r, row in enumerate([headings, *rows]):
        for c, text in enumerate(row):
            axes.text((w - 20) * sum(sizes[:c]) / sum(sizes), 12 + 26 * r, text, fontsize=9, va="center",
                      color=TEXT if r else BLUE)


DRAWERS = {"timeseries": draw_graph, "heatmap": draw_heatmap, "stat": draw_stat, "bargauge": draw_bars, "table": draw_table}


def draw(dashboard, answers, span, path):
    """`answers`: for each panel's id its [(target, series)]; `span`: whole seconds, from and to."""
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    canvas = Canvas(24 * COLUMN_PX + GAP_PX, ROW_PX * (rows + 1) + GAP_PX)
    canvas.figure.text(0.008, 1 - 0.6 * ROW_PX / canvas.height, dashboard["title"], color=TEXT, fontsize=14, va="center")
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        x, y = at["x"] * COLUMN_PX + GAP_PX, (at["y"] + 1) * ROW_PX + GAP_PX
        w, h = at["w"] * COLUMN_PX - GAP_PX, at["h"] * ROW_PX - GAP_PX
        is_row = panel["type"] == "row"
        frame = canvas.axes(x, y, w, h, framed=False)
        frame.text(10, 14, panel["title"], color=TEXT, fontsize=11 if is_row else 9.5, weight="bold", va="center")
        if is_row:
            frame.axis("off")
        elif any(series for _, series in answers[panel["id"]]):
            DRAWERS[panel["type"]](canvas, (x, y, w, h), panel, answers[panel["id"]], span)
        else:
            frame.text(w / 2, h / 2, "No data", color=TEXT, fontsize=12, ha="center")
    canvas.save(path)
