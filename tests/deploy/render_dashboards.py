#!/usr/bin/env python3
"""Draws both Grafana dashboards, as pictures to look at, from a live system; Grafana itself is not needed.

Starts two variants of the built-in model (bfloat16 with two workers, float32 with one) and a real Prometheus, puts a load on
them, asks Prometheus for every panel's own expressions over the time of the load, and draws dashboard_operate.png and
dashboard_compare.png. The load: prompts and answers of mixed lengths, clients that leave, in the middle third four times as many
clients; then a worker is killed, and comes back.

Needs a release build, Prometheus (scripts/setup) and matplotlib:

  scripts/test-venv && build/test-venv/bin/pip install matplotlib
  build/test-venv/bin/python tests/deploy/render_dashboards.py docs/reports
"""
import argparse
import asyncio
import os
import sys
import time

SOURCE_DIR = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("WEIGHTLESS_BIN_DIR", os.path.join(SOURCE_DIR, "build", "release", "bin"))

from prometheus_server import skip_without_prometheus  # noqa: E402

from live_dashboards import AT_ONCE, DASHBOARDS, LiveSystem, dashboard, fill_in, load  # noqa: E402

WINDOW_S = 10  # $__rate_interval
IDLE_S = 10    # before the load
BUSY = 4       # times as many clients in the middle third


async def run_load(system, seconds):
    async def busy(seed, url):
        await asyncio.sleep(seconds / 3)
        await load(url, seconds / 3, seed + 100, (BUSY - 1) * AT_ONCE)

    async def lose_a_worker():
        await asyncio.sleep(0.6 * seconds)
        await asyncio.to_thread(system.kill_worker)
        await asyncio.sleep(0.15 * seconds)
        await asyncio.to_thread(system.restart_worker)

    tasks = [lose_a_worker()]
    for seed, cluster in enumerate(system.clusters):
        tasks += [load(cluster.url, seconds, seed), busy(seed, cluster.url)]
    await asyncio.gather(*tasks)


def ask(prometheus, target, span):
    """A target's answer: [(labels, [(time, value)])], or [(labels, value)] where the panel asks for one moment."""
    expression = fill_in(target["expr"], f"{WINDOW_S}s", f"{span[1] - span[0]}s")
    if target.get("instant"):
        return prometheus.query(expression, span[1])
    return prometheus.query_range(expression, span[1] - span[0], end=span[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="where the pictures go")
    parser.add_argument("--seconds", type=int, default=90, help="length of the load (%(default)s)")
    arguments = parser.parse_args()
    skip_without_prometheus()
    try:
        from panel_drawing import draw
    except ImportError as error:
        sys.exit(f"{error}; see --help")
    system = LiveSystem()
    try:
        while sum(value for _, value in system.prometheus.query("up")) < 5:
            time.sleep(0.2)
        start = int(time.time()) + 1
        time.sleep(IDLE_S)
        asyncio.run(run_load(system, arguments.seconds))
        span = (start, start + IDLE_S + arguments.seconds)
        for name in DASHBOARDS:
            made = dashboard(name)
            answers = {p["id"]: [(t, ask(system.prometheus, t, span)) for t in p.get("targets", ())] for p in made["panels"]}
            path = os.path.join(arguments.folder, f"dashboard_{name}.png")
            draw(made, answers, span, path)
            print(path)
    finally:
        system.stop()


if __name__ == "__main__":
    main()
