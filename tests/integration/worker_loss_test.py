"""A worker that dies or hangs costs nothing: every stream ends with the bytes of the undisturbed run, and the worker is back.

20 workers are killed, and only five stopped: each of these takes five seconds, for `serve` waits three before it calls a worker hung.
"""
import asyncio
import os
import random
import signal
import tempfile
import time
import unittest

import http_client
from cluster import Process, cluster, get, metric, wait_ready, TINY_MODEL
from tls_files import Authority
from workload import make_requests

NUM_REQUESTS = 64
NUM_KILLS = int(os.environ.get("WEIGHTLESS_NUM_KILLS", "20"))
NUM_HANGS = max(1, NUM_KILLS // 4)
BACK_WITHIN_S = 10


def worker_pids(serve):
    """The worker processes that `weightless serve` runs, by the process table."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)
            with open(f"/proc/{pid}/cmdline") as file:
                command = file.read()
        except OSError:
            continue
        if int(fields[1].split()[1]) == serve.popen.pid and "weightless-worker" in command and fields[1].split()[0] != "Z":
            pids.append(int(pid))
    return pids


class WorkerLossTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.requests = make_requests(NUM_REQUESTS, seed=2, max_tokens=500)
        with cluster(worker_args=("--num-slots", 64)) as one:
            cls.num_events = 0
            cls.undisturbed = [asyncio.run(http_client.post(one.url, *request, cls.count_event)).comparable() for request in cls.requests]
        cls.serve = cls.start_serve()
        cls.url = cls.serve.wait_for_log(r"(http://127\.0\.0\.1:\d+)").group(1)
        wait_ready(cls.url)

    @classmethod
    def tearDownClass(cls):
        cls.serve.stop()

    @classmethod
    def count_event(cls, _):
        cls.num_events += 1

    @classmethod
    def start_serve(cls, *flags):
        return Process("weightless", "serve", "--model", TINY_MODEL, "--workers", 3, "--port", 0, *flags)

    def metric(self, name):
        return metric(self.url, f"weightless_{name}")

    def wait_until(self, what, condition, until):
        while not condition():
            self.assertLess(time.monotonic(), until, f"{what}: {get(self.url + '/v1/loads')}")
            time.sleep(0.05)

    async def run_with(self, number, rng):
        """All requests at once; one worker gets the signal at a random one of the undisturbed run's events. Returns when it was sent."""
        events = 0
        fired = asyncio.Event()
        after = rng.randrange(1, self.num_events)

        def on_event(_):
            nonlocal events
            events += 1
            if events >= after:
                fired.set()

        running = asyncio.gather(*(http_client.post(self.url, path, body, on_event) for path, body in self.requests))
        running.add_done_callback(lambda _: fired.set())  # should two tokens have come in one event
        await fired.wait()
        os.kill(rng.choice(worker_pids(self.serve)), number)
        sent = time.monotonic()
        answers = await running
        for request, expected, answer in zip(self.requests, self.undisturbed, answers):
            self.assertEqual(expected, answer.comparable(), request)
        return sent

    def lose_worker(self, number, rng):
        self.wait_until("three workers", lambda: self.metric("worker_up") == 3, time.monotonic() + 60)
        losses = self.metric("worker_losses_total")
        sent = asyncio.run(self.run_with(number, rng))
        back_at = max(sent + BACK_WITHIN_S, time.monotonic() + 0.1)
        self.wait_until("the loss is not counted", lambda: self.metric("worker_losses_total") > losses, back_at)
        self.wait_until("three workers are not back", lambda: self.metric("worker_up") == 3, back_at)

    def lose_workers(self, number, times, rng):
        losses, migrations = self.metric("worker_losses_total"), self.metric("migrations_total")
        for i in range(times):
            with self.subTest(loss=i):
                self.lose_worker(number, rng)
        self.assertGreaterEqual(self.metric("worker_losses_total") - losses, times)
        self.assertGreater(self.metric("migrations_total"), migrations)  # sequences went on elsewhere

    def test_killed_workers(self):
        self.lose_workers(signal.SIGKILL, NUM_KILLS, random.Random(3))

    def test_hanging_workers(self):
        self.lose_workers(signal.SIGSTOP, NUM_HANGS, random.Random(4))

    def test_a_worker_killed_while_grpc_is_encrypted(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(folder)
            plain, self.serve = self.serve, self.start_serve(*ours.flags(ours.issue("all")))
            plain_url = self.url
            try:
                self.url = self.serve.wait_for_log(r"(http://127\.0\.0\.1:\d+)").group(1)
                wait_ready(self.url)
                self.lose_workers(signal.SIGKILL, 1, random.Random(7))
                self.assertGreater(self.serve.log_text().count("tls=mutual"), 3)
            finally:
                self.serve.stop()
                self.serve, self.url = plain, plain_url


if __name__ == "__main__":
    unittest.main()
