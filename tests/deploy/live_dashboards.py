"""A live system for the dashboards: two variants of the dense model under a Prometheus and a load, and the panels' expressions."""
import asyncio
import json
import os
import signal
import time

from prometheus_server import DEPLOY_DIR, Prometheus

import http_client
from cluster import TINY_MODEL, Cluster, Process
from workload import make_requests

DASHBOARDS = ("operate", "compare")
BASELINE = "tiny-gemma3 dense bfloat16 cpu"
OTHER = "tiny-gemma3 dense float32 cpu"
AT_ONCE = 6


def dashboard(name):
    with open(os.path.join(DEPLOY_DIR, "grafana", "dashboards", name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def fill_in(expression, window, whole_range):
    """The expression with values for the dashboards' variables and Grafana's own."""
    for variable, value in (("$__rate_interval", window), ("$__range", whole_range), ("$instance", ".*"), ("$baseline", BASELINE)):
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


async def load(url, seconds, seed, at_once=AT_ONCE):
    """`at_once` clients that ask one request after the other; some leave in the middle."""
    requests = make_requests(200, seed, max_tokens=100)
    end = time.monotonic() + seconds

    async def client(number):
        i = number
        while time.monotonic() < end:
            path, body = requests[i % len(requests)]
            try:
                await asyncio.wait_for(http_client.post(url, path, body), 0.05 if i % 17 == 0 else 60)
            except asyncio.TimeoutError:
                pass
            i += at_once
    await asyncio.gather(*(client(number) for number in range(at_once)))


class LiveSystem:
    """A router with two bfloat16 workers, a router with one float32 worker, and a Prometheus that scrapes all five."""

    def __init__(self):
        self.clusters = [Cluster(2, worker_args=self._worker_args("bfloat16")), Cluster(1, worker_args=self._worker_args("float32"))]
        self.prometheus = Prometheus({
            "weightless-router": [c.url.removeprefix("http://") for c in self.clusters],
            "weightless-worker": [self._metrics_address(w) for c in self.clusters for w in c.workers]})

    @staticmethod
    def _worker_args(dtype, metrics_address="127.0.0.1:0"):
        return ("--metrics-listen", metrics_address, "--num-slots", 16, "--dtype", dtype)

    @staticmethod
    def _metrics_address(worker):
        return worker.wait_for_log(r"event=metrics_listening address=(\S+)").group(1)

    def kill_worker(self):
        """One of the two bfloat16 workers. Its sequences go on at the other one."""
        killed = self.clusters[0].workers[1]
        killed.signal(signal.SIGKILL)
        killed.popen.wait()

    def restart_worker(self):
        """What was killed, under the same addresses."""
        cluster = self.clusters[0]
        metrics_address = self._metrics_address(cluster.workers[1])
        cluster.workers[1].stop()
        cluster.workers[1] = Process("weightless-worker", "--model", TINY_MODEL, "--listen", cluster.addresses[1],
                                     *self._worker_args("bfloat16", metrics_address))

    def stop(self):
        self.prometheus.stop()
        for cluster in self.clusters:
            cluster.stop()
