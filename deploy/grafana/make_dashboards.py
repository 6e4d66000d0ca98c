#!/usr/bin/env python3
"""Writes dashboards/operate.json and dashboards/compare.json for Grafana.

  make_dashboards.py            writes both
  make_dashboards.py --check    exit code 1 when what is committed differs

Rules for the expressions: a counter is read through rate or increase before anything is summed, so that
restarts do no harm; a quantile is taken from summed buckets, never summed itself; a mean is the rate of a sum
over the rate of its count.
"""
import json
import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dashboards")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WINDOW = "[$__rate_interval]"
ROUTER = '{instance=~"$instance"}'
QUANTILES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))


# --- expressions ---

def rate(metric, selector=ROUTER):
    return f"rate({metric}{selector}{WINDOW})"


def quantile(q, histogram, by=(), selector=ROUTER):
    labels = ", ".join(("le", *by))
    return f"histogram_quantile({q}, sum by ({labels}) ({rate(histogram + '_bucket', selector)}))"


def mean(histogram, by):
    return f"sum by ({by}) ({rate(histogram + '_sum')}) / sum by ({by}) ({rate(histogram + '_count')})"


def ratio(part, whole, by=""):
    group = f" by ({by})" if by else ""
    return f"sum{group} ({part}) / (sum{group} ({whole}) > 0)"


def quantiles(histogram):
    return [(quantile(q, histogram), name) for q, name in QUANTILES]


# --- panels ---

def target(index, expression, legend, **more):
    return {"datasource": DATASOURCE, "refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend, **more}


def panel(kind, title, description, targets, unit, defaults=None, **more):
    return {"type": kind, "title": title, "description": description, "datasource": DATASOURCE, "targets": targets,
            "fieldConfig": {"defaults": {"unit": unit, **(defaults or {})}, "overrides": []}, "options": {}, **more}


def graph(title, description, unit, series, dashed=(), full=None, **defaults):
    """Lines over time. `series`: (expression, legend); legends in `dashed` are dashed. The axis reaches to `full` at least."""
    custom = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "none", "group": "A"}, **({"axisSoftMax": full} if full else {})}
    made = panel("timeseries", title, description, [target(i, *s) for i, s in enumerate(series)], unit,
                 {"custom": custom, "min": 0, **defaults})
    made["options"] = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byFrameRefID", "options": made["targets"][i]["refId"]},
         "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                        {"id": "custom.lineWidth", "value": 1},
                        {"id": "custom.fillOpacity", "value": 0},
                        {"id": "custom.stacking", "value": {"mode": "none"}}]}
        for i, (_, legend) in enumerate(series) if legend in dashed]
    return made


def stack(title, description, unit, series, dashed=(), colours=None, legend="table", **defaults):
    """As graph, but areas on top of each other, those in `dashed` left out; without lines, for one around nothing looks like
    something. `colours`: of series by name."""
    made = graph(title, description, unit, series, dashed, **defaults)
    made["fieldConfig"]["defaults"]["custom"].update(lineWidth=0, fillOpacity=60, stacking={"mode": "normal", "group": "A"})
    made["options"]["legend"]["displayMode"] = legend
    made["fieldConfig"]["overrides"] += [
        {"matcher": {"id": "byName", "options": name},
         "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]} for name, colour in (colours or {}).items()]
    return made


def heatmap(title, description, histogram):
    expression = f"sum by (le) (increase({histogram}_bucket{ROUTER}{WINDOW}))"
    made = panel("heatmap", title + ", distribution", description, [target(0, expression, "{{le}}", format="heatmap")], "s")
    made["options"] = {"calculate": False, "yAxis": {"unit": "s"}, "cellGap": 0, "filterValues": {"le": 1e-9},
                       "color": {"mode": "scheme", "scheme": "Oranges", "scale": "exponential", "exponent": 0.5, "steps": 64},
                       "tooltip": {"mode": "single", "yHistogram": True}, "legend": {"show": True}}
    return made


def stat(title, description, unit, expression, thresholds):
    """One number; `thresholds`: (from value or None, colour)."""
    steps = [{"value": value, "color": colour} for value, colour in thresholds]
    made = panel("stat", title, description, [target(0, expression, "", instant=True)], unit,
                 {"thresholds": {"mode": "absolute", "steps": steps}, "noValue": "-"})
    made["options"] = {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return made


def bars(title, description, unit, expression, legend):
    """A bar for each series, as they are now."""
    made = panel("bargauge", title, description, [target(0, expression, legend, instant=True)], unit, {"min": 0})
    made["options"] = {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return made


def table(title, description, columns, order=("variant",)):
    """One row for each variant; `columns`: (expression, heading, unit). `order`: of the labels."""
    targets = [target(i, expression, "", format="table", instant=True) for i, (expression, _, _) in enumerate(columns)]
    made = panel("table", title, description, targets, "short")
    several = len(columns) > 1
    value = [f"Value #{t['refId']}" if several else "Value" for t in targets]
    made["transformations"] = [
        *([{"id": "merge", "options": {}}] if several else []),
        {"id": "organize", "options": {"excludeByName": {"Time": True},
                                       "indexByName": {name: i for i, name in enumerate((*order, *value))},
                                       "renameByName": {v: heading for v, (_, heading, _) in zip(value, columns)}}}]
    made["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        for _, heading, unit in columns]
    return made


def lay_out(rows):
    """Rows of (heading, height, panels) to a grid 24 wide; a row's panels share the width evenly."""
    placed, y = [], 0
    for heading, height, panels in rows:
        if heading:
            placed.append({"type": "row", "title": heading, "collapsed": False, "panels": [],
                           "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
            y += 1
        edges = [24 * i // len(panels) for i in range(len(panels) + 1)]
        for one, left, right in zip(panels, edges, edges[1:]):
            placed.append({**one, "gridPos": {"x": left, "y": y, "w": right - left, "h": height}})
        y += height
    for number, one in enumerate(placed):
        one["id"] = number + 1
    return placed


def variable(name, label, query, **more):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "refresh": 2, "sort": 1,
            "query": {"query": query, "refId": "Variable"}, "definition": query, **more}


def dashboard(uid, title, description, variables, rows):
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}
    return {"uid": uid, "title": title, "description": description, "tags": ["weightless"], "schemaVersion": 39,
            "editable": True, "graphTooltip": 1, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser", "templating": {"list": [source, *variables]}, "annotations": {"list": []},
            "panels": lay_out(rows)}


# --- operate ---

OUTCOMES = {"stop": "green", "length": "blue", "tool_calls": "purple", "aborted": "orange", "error": "red"}
STATUS_CLASSES = {"2xx": "green", "4xx": "orange", "5xx": "red"}

def operate():
    up = "weightless_worker_up" + ROUTER
    requests = rate("weightless_requests_total")
    failed = rate("weightless_requests_total", '{instance=~"$instance", outcome="error"}')
    plain, warn, bad = (None, "green"), "orange", "red"
    rows = [
        (None, 4, [
            stat("Workers ready", "Workers that take plans now.", "short", f"sum({up}) or vector(0)", ((None, bad), (1, "green"))),
            stat("Workers missing", "Workers that the router knows and that take no plans.", "short",
                 f"count({up} == 0) or vector(0)", (plain, (1, warn))),
            stat("Running", "Sequences on a worker.", "short", f"sum(weightless_running_sequences{ROUTER})", (plain,)),
            stat("Waiting", "Sequences that no worker has room for yet.", "short", f"sum(weightless_queued_sequences{ROUTER})",
                 (plain, (1, warn), (100, bad))),
            stat("Requests that fail", "Share of ended requests with an error of ours.", "percentunit",
                 f"{ratio(failed, requests)} or vector(0)", (plain, (0.001, warn), (0.02, bad))),
            stat("TTFT p99", "Of the last minutes.", "s", quantile(0.99, "weightless_ttft_seconds") + " >= 0", (plain, (1, warn), (5, bad))),
            stat("Fullest KV pool", "Share of blocks that sequences hold.", "percentunit", f"max(weightless_kv_used_ratio{ROUTER})",
                 (plain, (0.8, warn), (0.95, bad)))]),
        ("Requests", 8, [
            stack("Requests by outcome", "Generation requests that ended, each second.", "reqps",
                  [(f"sum by (outcome) ({requests})", "{{outcome}}")], colours=OUTCOMES),
            graph("Running and waiting", "Sequences; a request with n choices is n of them.", "short",
                  [(f"sum(weightless_running_sequences{ROUTER})", "running"),
                   (f"sum(weightless_queued_sequences{ROUTER})", "waiting"),
                   (f"sum(weightless_requests_running{ROUTER})", "requests under way")], decimals=0),
            graph("Tokens", "Prompt tokens are counted when they are prefilled.", "short",
                  [(f"sum({rate('weightless_generated_tokens_total')})", "generated/s"),
                   (f"sum({rate('weightless_prompt_tokens_total')})", "prompt/s"),
                   (f"sum({rate('weightless_cached_tokens_total')})", "prompt from the prefix cache/s")])]),
        ("Latency", 8, [
            graph("Time to first token", "Request read to first content byte written.", "s", quantiles("weightless_ttft_seconds")),
            graph("Time per output token", "Mean over an answer's tokens after the first.", "s", quantiles("weightless_tpot_seconds")),
            graph("Between tokens", "Each gap between two tokens of an answer.", "s", quantiles("weightless_itl_seconds"))]),
        (None, 8, [
            heatmap("Time to first token", "Requests in each bucket, in one rate interval.", "weightless_ttft_seconds"),
            heatmap("Time per output token", "Answers in each bucket, in one rate interval.", "weightless_tpot_seconds"),
            heatmap("Between tokens", "Gaps in each bucket, in one rate interval.", "weightless_itl_seconds"),
            heatmap("Waiting for a worker", "Sequences in each bucket, in one rate interval.", "weightless_queue_seconds")]),
        (None, 8, [
            graph("Waiting for a worker", "Accepted to placed.", "s", quantiles("weightless_queue_seconds")),
            graph("Whole request", "Request read to its end.", "s", quantiles("weightless_e2e_seconds")),
            graph("Added by the router", "prepare: read, templated, tokenised, queued. deliver: a step's result to its bytes written.",
                  "s", [(quantile(q, "weightless_router_added_seconds", ("stage",)), f"{{{{stage}}}} {name}")
                        for q, name in ((0.5, "p50"), (0.99, "p99"))])]),
        ("KV cache", 8, [
            graph("KV blocks", "Share of each pool: held by sequences; held by none, but with a prefix that can be found.", "percentunit",
                  [(ratio("weightless_kv_blocks_used" + ROUTER, "weightless_kv_blocks" + ROUTER, "pool"), "{{pool}} held"),
                   (ratio("weightless_kv_blocks_cached" + ROUTER, "weightless_kv_blocks" + ROUTER, "pool"), "{{pool}} cached")],
                  dashed=("{{pool}} cached",), full=1),
            graph("Prefix cache", "Share of prompt tokens that were found in it.", "percentunit",
                  [(ratio(rate("weightless_cached_tokens_total"), rate("weightless_prefix_queried_tokens_total")), "hit ratio")], full=1),
            graph("Sequences put back", "Preempted for want of blocks, moved because their worker was lost.", "short",
                  [(f"sum({rate('weightless_preemptions_total')})", "preemptions/s"),
                   (f"sum({rate('weightless_migrations_total')})", "migrations/s"),
                   (f"sum({rate('weightless_worker_losses_total')})", "workers lost/s")]),
            graph("Tokens computed again", "Of sequences that were put back, each second.", "short",
                  [(f"sum({rate('weightless_recomputed_tokens_total')})", "tokens/s")])]),
        ("Steps", 8, [
            graph("Step time", "On the device.", "s",
                  [(quantile(0.5, "weightless_step_seconds"), "p50 of all"),
                   (quantile(0.99, "weightless_step_seconds", ("worker",)), "p99 of {{worker}}")], dashed=("p50 of all",)),
            graph("Batch size", "Mean number of sequences in a step.", "short", [(mean("weightless_step_sequences", "worker"), "{{worker}}")]),
            graph("Plan-ahead stalls", "Share of steps whose plan came late, as the router sees it.", "percentunit",
                  [(ratio(rate("weightless_plan_ahead_stalls_total"), rate("weightless_steps_total"), "worker"), "{{worker}}")]),
            graph("Waiting for a plan", "Share of its time that a worker with work to do waited for a plan, as the worker sees it.",
                  "percentunit", [(f"sum by (instance) ({rate('weightless_engine_wait_seconds_total', '')})", "{{instance}}")])]),
        ("Workers", 8, [
            stack("Device memory", "Ledger of all ready workers by class of use. The total of a CPU is its machine's memory, "
                  "for each worker on it; beside it a small model is a line at the bottom.", "bytes",
                  [(f"sum by (class) (weightless_memory_bytes{ROUTER})", "{{class}}"),
                   (f"sum(weightless_memory_total_bytes{ROUTER})", "devices' total")], dashed=("devices' total",), legend="list"),
            bars("Device memory by class", "The same now.", "bytes",
                 f"sort_desc(sum by (class) (weightless_memory_bytes{ROUTER}))", "{{class}}"),
            graph("Device busy", "Share of time in steps.", "percentunit",
                  [(f"sum by (worker) ({rate('weightless_step_seconds_sum')})", "{{worker}}")], full=1),
            stack("Workers up", "Each counts while plans can be sent to it.", "short", [(f"sum by (worker) ({up})", "{{worker}}")],
                  decimals=0)]),
        ("Processes", 8, [
            stack("HTTP responses", "Every route, by class of status code.", "reqps",
                  [(f"sum by (class) ({rate('weightless_http_responses_total')})", "{{class}}")], colours=STATUS_CLASSES),
            graph("Processor time", "Cores in use by routers and workers.", "short",
                  [(f"sum by (job, instance) (rate(process_cpu_seconds_total{{job=~\"weightless-.*\"}}{WINDOW}))", "{{job}} {{instance}}")]),
            graph("Resident memory", "Of routers and workers.", "bytes",
                  [('sum by (job, instance) (process_resident_memory_bytes{job=~"weightless-.*"})', "{{job}} {{instance}}")])]),
    ]
    instance = variable("instance", "Router", "label_values(weightless_requests_running, instance)", multi=True, includeAll=True,
                        allValue=".*", current={"text": "All", "value": "$__all"})
    return dashboard("weightless-operate", "Weightless: operate", "What a running deployment does and whether it is well.", [instance], rows)


# --- compare ---

BASELINE = '{variant="$baseline"}'
FACTS = ("variant", "model", "mode", "rank", "bands", "w0_encoding", "dtype", "device", "numerics")


def of_variant(expression, info=""):
    """A router's series with the label `variant` of what it serves."""
    return f"{expression} * on (job, instance) group_left (variant) weightless_variant_info{info}"


def side_by_side(title, description, unit, make, names=("",)):
    """Each variant's value and its ratio to the baseline. `make(info)` gives one expression for each name, by variant."""
    legends = ["{{variant}} " + name if name else "{{variant}}" for name in names]
    ratios = [f"{value} / on () group_left () ({base} > 0)" for value, base in zip(make(""), make(BASELINE))]
    return [graph(title, description, unit, list(zip(make(""), legends)), legends[1:]),
            graph(f"{title}, ratio to baseline", "1 = as the baseline.", "none", list(zip(ratios, legends)), legends[1:])]


def compare():
    done = '{outcome=~"stop|length|tool_calls"}'

    def per_second(metric, selector="", window=WINDOW):
        return lambda info: [f"sum by (variant) ({of_variant(f'rate({metric}{selector}{window})', info)})"]

    def spread(histogram, window=WINDOW, qs=((0.5, "p50"), (0.99, "p99"))):
        return lambda info: [f"histogram_quantile({q}, sum by (variant, le) ({of_variant(f'rate({histogram}_bucket{window})', info)}))"
                             for q, _ in qs]

    def memory(info):
        worker_info = f"on (job, instance, worker) group_left (variant) weightless_worker_info{info}"
        return [f"avg by (variant) (weightless_memory_allocated_bytes * {worker_info})",
                f'avg by (variant) (sum by (job, instance, worker) (weightless_memory_bytes{{class!~"kv_.*|logits|activations|workspace"}}) * {worker_info})']

    by_class = ("sum by (variant, class) (weightless_memory_bytes * on (job, instance, worker) group_left (variant) weightless_worker_info)"
                " / on (variant) group_left () count by (variant) (weightless_worker_info)")
    whole = "[$__range]"
    median = ((0.5, "p50"),)
    workers = lambda info: [f"count by (variant) (weightless_worker_info{info})"]  # noqa: E731
    summary = [(workers, "workers now", "short"),
               (per_second("weightless_requests_total", done, whole), "requests/s", "reqps"),
               (per_second("weightless_generated_tokens_total", "", whole), "tokens/s", "short"),
               (spread("weightless_ttft_seconds", whole, median), "TTFT p50", "s"),
               (spread("weightless_tpot_seconds", whole, median), "TPOT p50", "s"),
               (memory, "memory of a worker", "bytes")]
    rows = [
        (None, 6, [table("Variants", "What is served now.",
                         [(f"count by ({', '.join(FACTS)}) (weightless_variant_info)", "routers", "short")], FACTS)]),
        (None, 7, [table("Over the whole time range", "Means and medians of each variant; rates are of all its workers together.",
                         [(make("")[0], heading, unit) for make, heading, unit in summary]),
                   table("Over the whole time range, ratio to baseline", "1 = as the baseline.",
                         [(f"{make('')[0]} / on () group_left () ({make(BASELINE)[0]} > 0)", heading, "none")
                          for make, heading, _ in summary])]),
        ("Throughput", 8, side_by_side("Requests", "That ended well, each second.", "reqps", per_second("weightless_requests_total", done))),
        (None, 8, side_by_side("Output tokens", "Each second.", "short", per_second("weightless_generated_tokens_total"))),
        ("Latency", 8, side_by_side("Time to first token", "Request read to first content byte written.", "s",
                                    spread("weightless_ttft_seconds"), ("p50", "p99"))),
        (None, 8, side_by_side("Time per output token", "Mean over an answer's tokens after the first.", "s",
                               spread("weightless_tpot_seconds"), ("p50", "p99"))),
        (None, 8, side_by_side("Step time", "On the device.", "s", spread("weightless_step_seconds"), ("p50", "p99"))),
        ("Memory", 8, side_by_side("Memory of a worker", "Taken on its device, and the part that is the model.", "bytes", memory,
                                   ("all", "model"))),
        (None, 10, [bars("Memory of a worker by class", "The ledger, mean over the variant's workers.", "bytes",
                         f"sort_desc({by_class})", "{{class}}: {{variant}}")]),
    ]
    baseline = variable("baseline", "Baseline", "label_values(weightless_variant_info, variant)")
    return dashboard("weightless-compare", "Weightless beside dense",
                     "Every served variant (weight mode, rank, bands, W0 encoding, dtype, device) against one of them.", [baseline], rows)


def main():
    stale = False
    for name, content in (("operate", operate()), ("compare", compare())):
        path = os.path.join(FOLDER, name + ".json")
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if sys.argv[1:] == ["--check"]:
            with open(path, encoding="utf-8") as file:
                if file.read() != text:
                    print(f"{path} is not what make_dashboards.py writes", file=sys.stderr)
                    stale = True
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
