"""Every output is, byte for byte, what the same request gives alone on an idle server.

Whatever shares its batch: chunked prefill, preemption by a tiny KV pool, prefix cache cold and warm, steps in flight in the worker,
one worker or three.
"""
import asyncio
import os
import unittest

import http_client
from cluster import cluster, metric
from workload import make_requests

LONGEST = 900  # output tokens
NUM_REQUESTS = int(os.environ.get("WEIGHTLESS_EXACTNESS_REQUESTS", "64"))
ROOMY = ("--num-slots", 64, "--max-step-tokens", 256)
# 64 sequences of up to 1,024 tokens want 1,024 blocks; 48 hold three of the longest, so many are preempted.
TIGHT = (*ROOMY, "--num-full-blocks", 48, "--num-sliding-blocks", 100)


async def run_alone(url, requests):
    return [(await http_client.post(url, path, body)).comparable() for path, body in requests]


async def run_together(url, requests):
    answers = await asyncio.gather(*(http_client.post(url, path, body) for path, body in requests))
    return [answer.comparable() for answer in answers]


class ExactnessTest(unittest.TestCase):
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        cls.requests = make_requests(NUM_REQUESTS, seed=1, max_tokens=LONGEST)
        with cluster(worker_args=ROOMY) as one:
            cls.alone = asyncio.run(run_alone(one.url, cls.requests))

    def check(self, answers):
        for request, alone, together in zip(self.requests, self.alone, answers):
            self.assertEqual(alone, together, request)

    def test_alone_every_request_ends_well(self):
        for request, (status, _, finish, _, _, usage, error, done) in zip(self.requests, self.alone):
            self.assertEqual((status, error, done), (200, None, True), request)
            self.assertEqual(len(finish), request[1].get("n", 1))
            self.assertGreaterEqual(usage["completion_tokens"], 1)

    def test_alone_an_answer_is_as_long_as_the_longest_asked_for(self):
        must_reach = [body["max_tokens"] for _, body in self.requests if body["ignore_eos"] and "stop" not in body]
        if NUM_REQUESTS >= 64:
            self.assertEqual(max(must_reach), LONGEST)
        lengths = [len(ids) for _, _, _, _, token_ids, *_ in self.alone for ids in token_ids.values()]
        self.assertEqual(max(lengths), max(must_reach))

    def test_together_on_one_worker_cold_and_warm(self):
        with cluster(worker_args=ROOMY) as one:
            self.check(asyncio.run(run_together(one.url, self.requests)))
            cold = metric(one.url, "weightless_cached_tokens_total")
            self.check(asyncio.run(run_together(one.url, self.requests)))
            warm = metric(one.url, "weightless_cached_tokens_total") - cold
            self.assertGreater(warm, cold)  # of which there are a few: some prompts begin alike

    def test_together_under_preemption(self):
        with cluster(worker_args=TIGHT) as one:
            self.check(asyncio.run(run_together(one.url, self.requests)))
            self.assertGreater(metric(one.url, "weightless_preemptions_total"), 0)

    def test_together_with_steps_launched_before_the_results_of_earlier_ones(self):
        with cluster(worker_args=(*TIGHT, "--steps-in-flight", 3), router_args=("--plan-ahead", 4)) as one:
            self.check(asyncio.run(run_together(one.url, self.requests)))

    def test_together_on_three_workers(self):
        with cluster(3, worker_args=(*TIGHT, "--threads", 1)) as three:
            self.check(asyncio.run(run_together(three.url, self.requests)))
            self.check(asyncio.run(run_together(three.url, self.requests[::-1]))[::-1])
            steps = {address: metric(three.url, "weightless_steps_total", f'worker="{address}"') for address in three.addresses}
            self.assertGreater(min(steps.values()), 0, steps)

    def test_small_chunks(self):
        with cluster(worker_args=ROOMY, router_args=("--max-chunk-tokens", 48, "--plan-ahead", 4)) as one:
            self.check(asyncio.run(run_together(one.url, self.requests)))


if __name__ == "__main__":
    unittest.main()
