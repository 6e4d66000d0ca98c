"""Two keys on one worker: one floods at fifty times its share, and the other's TTFT stays what it is on an idle server.

The quiet key sends a request every so often, by turns alone and beside the other one, so that both values come from the same minute.
Both keys are driven by loadtest, whose own work would otherwise be part of what is measured.
"""
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
import unittest

from cluster import BIN_DIR, SANITIZED, cluster

ROUNDS = 5
PHASE_S = 5
NUM_SLOTS = 8
EXCESS = 50
FLOOD_CONCURRENCY = EXCESS * NUM_SLOTS // 2  # its share is half of the slots
FLOOD_TOKENS = (64, 400)                     # prompt, output
QUIET_RATE = 8                               # requests/s
QUIET_TOKENS = (256, 8)
HEAD_START_S = 1.5
LIMIT = 2.0  # the 99th percentile beside the idle one


class Load:
    """loadtest under one key, in the background."""

    def __init__(self, url, key, tokens, seed, *how):
        self.report = tempfile.NamedTemporaryFile(suffix=".json")
        self.popen = subprocess.Popen(
            [os.path.join(BIN_DIR, "loadtest"), "--url", url, "--endpoint", "completions", "--api-key", key, "--seed", str(seed),
             "--input-tokens", str(tokens[0]), "--output-tokens", str(tokens[1]), "--ignore-eos", "--warmup", "0", "--no-audit",
             "--metrics-url", "off", "--progress", "off", "--save-detailed", "--json", self.report.name, *map(str, how)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def result(self, stop=False):
        """What it saw until its end, or until now."""
        if stop:
            self.popen.send_signal(signal.SIGINT)
        said = self.popen.communicate(timeout=120)[0]
        assert self.popen.returncode == (130 if stop else 0), said
        with open(self.report.name) as file:
            return json.load(file)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


class FairnessTest(unittest.TestCase):
    def quiet_ttfts(self, url, seed):
        found = Load(url, "sk-quiet", QUIET_TOKENS, seed, "--request-rate", QUIET_RATE, "--arrival", "constant", "--duration",
                     PHASE_S).result()
        self.assertEqual(found["failed"], 0)
        return found["ttfts"]

    def test_a_flooding_key_is_not_felt_by_another(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("flood:sk-flood\nquiet:sk-quiet\n")
            keys.flush()
            with cluster(worker_args=("--num-slots", NUM_SLOTS, "--threads", 1), router_args=("--api-key-file", keys.name)) as one:
                rounds = []  # 99th percentiles: idle, flooded
                for i in range(ROUNDS):
                    idle = self.quiet_ttfts(one.url, 10 + i)
                    flood = Load(one.url, "sk-flood", FLOOD_TOKENS, 30 + i, "--concurrency", FLOOD_CONCURRENCY, "--duration", 60)
                    try:
                        time.sleep(HEAD_START_S)
                        flooded = self.quiet_ttfts(one.url, 50 + i)
                        others = flood.result(stop=True)
                    finally:
                        flood.popen.kill()
                    self.assertGreater(others["completed"], 0)
                    rounds.append((percentile(idle, 0.99), percentile(flooded, 0.99)))
                    print("quiet key, ttft ms: " + ", ".join(
                        f"{name} p50 {percentile(v, 0.5) * 1e3:.1f} p99 {percentile(v, 0.99) * 1e3:.1f}"
                        for name, v in (("idle", idle), ("flooded", flooded))) + f"; the other completed {others['completed']}", flush=True)
        # A machine that others use has bad seconds, in either phase: the round in the middle of each speaks.
        idle, flooded = (statistics.median(values) for values in zip(*rounds))
        print(f"quiet key, p99 of the middle round, ms: idle {idle * 1e3:.1f}, flooded {flooded * 1e3:.1f}; ratio {flooded / idle:.2f}",
              flush=True)
        if not SANITIZED:
            self.assertLess(flooded / idle, LIMIT)


if __name__ == "__main__":
    unittest.main()
