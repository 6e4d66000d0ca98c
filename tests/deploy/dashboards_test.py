"""Every panel of both dashboards returns data from a live system, and every alert rule evaluates.

Two variants of the dense model serve at once (bfloat16 with two workers, float32 with one), so that the comparison
compares something. Each target's expression goes through the HTTP API of a real Prometheus; an empty answer fails.
"""
import asyncio
import math
import os
import subprocess
import sys
import time
import unittest

from prometheus_server import DEPLOY_DIR, skip_without_prometheus

from live_dashboards import BASELINE, DASHBOARDS, OTHER, LiveSystem, dashboard, fill_in, load

LOAD_S = 25
WINDOW = "20s"


def panels():
    """(dashboard, title, panel type, expression) of every target, its variables filled in."""
    for name in DASHBOARDS:
        for panel in dashboard(name)["panels"]:
            for target in panel.get("targets", ()):
                yield name, panel["title"], panel["type"], fill_in(target["expr"], WINDOW, WINDOW)


class DashboardsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = LiveSystem()
        cls.prometheus = cls.system.prometheus

        async def run():
            await asyncio.gather(*(load(c.url, LOAD_S, seed) for seed, c in enumerate(cls.system.clusters)))
        asyncio.run(run())

    @classmethod
    def tearDownClass(cls):
        cls.system.stop()

    def test_every_panel_has_data(self):
        for name, title, kind, expression in panels():
            with self.subTest(dashboard=name, panel=title, expression=expression):
                result = self.prometheus.query(expression)
                self.assertTrue(result, "no data")
                finite = [value for _, value in result if math.isfinite(value)]
                self.assertTrue(finite, f"no finite value: {result}")
                if kind == "timeseries":
                    series = self.prometheus.query_range(expression, LOAD_S // 2)
                    self.assertGreater(max(len(values) for _, values in series), 5)

    def test_what_moves_under_load_is_not_zero(self):
        moving = ("Requests by outcome", "Tokens", "Time to first token", "Time per output token", "Between tokens", "Step time",
                  "Batch size", "Device busy", "Device memory", "Requests", "Output tokens", "Memory of a worker", "Processor time")
        for name, title, _, expression in panels():
            if title in moving:
                with self.subTest(dashboard=name, panel=title, expression=expression):
                    self.assertGreater(max(value for _, value in self.prometheus.query(expression)), 0)

    def test_variants_stand_side_by_side(self):
        seen = set()
        for name, title, _, expression in panels():
            if name != "compare" or title == "Memory of a worker by class":
                continue
            with self.subTest(panel=title, expression=expression):
                values = {labels["variant"]: value for labels, value in self.prometheus.query(expression)}
                self.assertEqual({BASELINE, OTHER}, set(values))
                if "ratio to baseline" in title:
                    self.assertEqual(1, values[BASELINE])
                    self.assertGreater(values[OTHER], 0)
                    seen.add(title)
        self.assertGreaterEqual(len(seen), 6)
        weights = {labels["variant"]: value for labels, value in self.prometheus.query(
            'avg by (variant) (weightless_memory_bytes{class="weights"} * on (job, instance, worker)'
            ' group_left (variant) weightless_worker_info)')}
        self.assertEqual(2 * weights[BASELINE], weights[OTHER])  # float32 is twice bfloat16

    def test_router_and_workers_tell_the_same_story(self):
        def total(expression):
            (_, value), = self.prometheus.query(expression)
            return value
        self.assertEqual(3, total("sum(weightless_worker_up)"))
        self.assertEqual(total("sum(weightless_memory_total_bytes)"), total("sum(weightless_engine_memory_total_bytes)"))
        self.assertEqual(total("sum(weightless_engine_memory_bytes)"), total("sum(weightless_engine_memory_allocated_bytes)"))
        quiet, deadline = time.time() + 1, time.monotonic() + 60  # by then the last step is over
        while min(total("min(timestamp(weightless_steps_total))"),
                  total("min(timestamp(weightless_engine_step_seconds_count))")) < quiet:
            self.assertLess(time.monotonic(), deadline, "not scraped")
            time.sleep(0.2)
        steps = total("sum(weightless_steps_total)")  # also those whose sequences had all ended: nothing to compute
        self.assertLessEqual(total("sum(weightless_engine_step_seconds_count)"), steps)
        self.assertGreater(total("sum(weightless_engine_step_seconds_count)"), 0.99 * steps)
        sampled = total("sum(weightless_engine_sampled_tokens_total)")  # also for sequences that the router had ended
        self.assertLessEqual(total("sum(weightless_generated_tokens_total)"), total("sum(weightless_sampled_tokens_total)"))
        self.assertLessEqual(total("sum(weightless_sampled_tokens_total)"), sampled)
        self.assertGreater(total("sum(weightless_sampled_tokens_total)"), 0.97 * sampled)
        self.assertAlmostEqual(total("sum(weightless_engine_step_seconds_sum)"), total("sum(weightless_step_seconds_sum)"), places=6)

    def test_alert_rules_evaluate(self):
        rules = [rule for group in self.prometheus.api("rules")["groups"] for rule in group["rules"]]
        self.assertGreaterEqual(len(rules), 7)
        for rule in rules:
            self.assertEqual(("ok", ""), (rule["health"], rule.get("lastError", "")), rule["name"])
        firing = [alert["labels"]["alertname"] for alert in self.prometheus.api("alerts")["alerts"] if alert["state"] == "firing"]
        self.assertEqual([], firing)

    def test_committed_dashboards_are_what_the_script_writes(self):
        subprocess.run([sys.executable, os.path.join(DEPLOY_DIR, "grafana", "make_dashboards.py"), "--check"], check=True)

    def test_alert_rules_pass_their_unit_tests(self):
        subprocess.run(["promtool", "test", "rules", "alerts_test.yml"], cwd=os.path.join(DEPLOY_DIR, "prometheus"), check=True,
                       stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    skip_without_prometheus()
    unittest.main()
