"""Plans sent ahead hide the round trip: 2 ms of delay on the stream cost nothing while enough plans are in flight."""
import asyncio
import time
import unittest

import http_client
from cluster import SANITIZED, cluster, metric

DELAY_MS = 2
ENOUGH = 24          # plans; covers two delays at steps of 0.25 ms and more
NUM_STREAMS = 8
OUTPUT_TOKENS = 960
ROUNDS = 5


async def decode(url):
    """Tokens per second of NUM_STREAMS sequences decoding together; not streamed, so that this client costs nothing."""
    body = {"prompt": "ocean (noun):", "max_tokens": OUTPUT_TOKENS, "ignore_eos": True, "temperature": 0}
    start = time.monotonic()
    answers = await asyncio.gather(*(http_client.post(url, "/v1/completions", body) for _ in range(NUM_STREAMS)))
    assert all(answer.done and not answer.error for answer in answers)
    return NUM_STREAMS * OUTPUT_TOKENS / (time.monotonic() - start)


class PlanAheadTest(unittest.TestCase):
    def test_delay_is_hidden_by_plans_in_flight_and_not_without(self):
        settings = {"no delay": (0, ENOUGH), "delay, planned ahead": (DELAY_MS, ENOUGH), "delay, one plan": (DELAY_MS, 1)}
        rates = {name: [] for name in settings}
        stalls = dict.fromkeys(settings, 0.0)
        for _ in range(ROUNDS):  # interleaved, so that a drift of the machine meets all three
            for name, (delay_ms, plan_ahead) in settings.items():
                # One thread: the worker leaves a core to the router and its delay.
                with cluster(worker_args=("--threads", 1), router_args=("--plan-ahead", plan_ahead, "--stream-delay-ms", delay_ms)) as one:
                    asyncio.run(decode(one.url))  # warm
                    before = metric(one.url, "weightless_plan_ahead_stalls_total")
                    rates[name].append(asyncio.run(decode(one.url)))
                    stalls[name] += metric(one.url, "weightless_plan_ahead_stalls_total") - before
        best = {name: max(values) for name, values in rates.items()}  # noise only ever slows
        for name in settings:
            print(f"{name}: {best[name]:.0f} tokens/s, {stalls[name] / ROUNDS:.0f} stalls in {OUTPUT_TOKENS} steps")
        hidden = best["delay, planned ahead"] / best["no delay"]
        exposed = best["delay, one plan"] / best["no delay"]
        if not SANITIZED:
            self.assertGreater(hidden, 0.9)
            self.assertLess(exposed, 0.8)
        self.assertGreater(stalls["delay, one plan"], ROUNDS * OUTPUT_TOKENS * 0.9)
        self.assertLess(stalls["delay, planned ahead"], ROUNDS * OUTPUT_TOKENS * 0.1)


if __name__ == "__main__":
    unittest.main()
