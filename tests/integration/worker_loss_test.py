"""A worker that dies or hangs costs nothing: every stream ends with the bytes of the undisturbed run, and the worker is back."""
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
            cls.undisturbed = [asyncio.run(http_client.post(one.url, *request)).comparable() for request in cls.requests]
        cls.serve = cls.start_serve()
        cls.url = cls.serve.wait_for_log(r"(http://127\.0\.0\.1:\d+)").group(1)
        wait_ready(cls.url)

    @classmethod
    def tearDownClass(cls):
        cls.serve.stop()

    @classmethod
    def start_serve(cls, *flags):
        return Process("weightless", "serve", "--model", TINY_MODEL, "--workers", 3, "--port", 0, *flags)

    def ready_workers(self):
        return metric(self.url, "weightless_worker_up")

    def wait_for_workers(self, count, within_s):
        start = time.monotonic()
        while self.ready_workers() != count:
            self.assertLess(time.monotonic() - start, within_s, f"{count} workers were not back: {get(self.url + '/v1/loads')}")
            time.sleep(0.05)
        return time.monotonic() - start

    async def run_with(self, number, rng):
        """All requests at once; one worker gets the signal at a random moment while tokens flow. Returns when it was sent."""
        events = 0
        fired = asyncio.Event()
        after = rng.randrange(1, 1500)

        def on_event(_):
            nonlocal events
            events += 1
            if events >= after:
                fired.set()

        tasks = [asyncio.create_task(http_client.post(self.url, path, body, on_event)) for path, body in self.requests]
        await fired.wait()
        os.kill(rng.choice(worker_pids(self.serve)), number)
        sent = time.monotonic()
        answers = await asyncio.gather(*tasks)
        for request, expected, answer in zip(self.requests, self.undisturbed, answers):
            self.assertEqual(expected, answer.comparable(), request)
        return sent

    def lose_worker(self, number, rng):
        self.wait_for_workers(3, 60)
        killed = asyncio.run(self.run_with(number, rng))
        self.wait_for_workers(3, max(0.1, BACK_WITHIN_S - (time.monotonic() - killed)))

    def test_killed_workers(self):
        rng = random.Random(3)
        for i in range(NUM_KILLS):
            with self.subTest(kill=i):
                self.lose_worker(signal.SIGKILL, rng)

    def test_hanging_workers(self):
        rng = random.Random(4)
        for i in range(max(1, NUM_KILLS // 4)):
            with self.subTest(hang=i):
                self.lose_worker(signal.SIGSTOP, rng)

    def test_a_worker_killed_while_grpc_is_encrypted(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(folder)
            plain, self.serve = self.serve, self.start_serve(*ours.flags(ours.issue("all")))
            plain_url = self.url
            try:
                self.url = self.serve.wait_for_log(r"(http://127\.0\.0\.1:\d+)").group(1)
                wait_ready(self.url)
                self.lose_worker(signal.SIGKILL, random.Random(5))
                self.assertGreater(self.serve.log_text().count("tls=mutual"), 3)
            finally:
                self.serve.stop()
                self.serve, self.url = plain, plain_url


if __name__ == "__main__":
    unittest.main()
