"""Streamed text equals non-streamed text, over 1,000 random stop sets."""
import asyncio
import os
import random
import unittest

import http_client
from cluster import cluster

NUM_SETS = int(os.environ.get("WEIGHTLESS_STOP_SETS", "1000"))
AT_ONCE = 32
PROMPTS = ["ocean (noun):", "run (verb):", "a", "Ünïcödé 🙂 日本語", "compression (noun): the act of"]
ALPHABET = ["a", "e", "the", " ", " of ", "in", "ing", "; ", ")", "ion", "t", "é", "n (", "ou", "u", "person", "\n", "zq"]


def make_body(rng):
    stops = ["".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 4))) for _ in range(rng.randrange(1, 5))]
    max_tokens = rng.randrange(1, 60)
    return {"prompt": rng.choice(PROMPTS), "max_tokens": max_tokens, "stop": stops, "ignore_eos": rng.random() < 0.5,
            "temperature": rng.choice([0, 1.2]), "seed": rng.randrange(1000), "min_tokens": rng.choice([0, 0, min(5, max_tokens)]),
            "include_stop_str_in_output": rng.random() < 0.3}


class StopSetsTest(unittest.TestCase):
    def test_streamed_equals_whole(self):
        rng = random.Random(5)
        bodies = [make_body(rng) for _ in range(NUM_SETS)]

        async def run(url):
            gate = asyncio.Semaphore(AT_ONCE)

            async def both(body):
                async with gate:
                    streamed = await http_client.post(url, "/v1/completions",
                                                      {**body, "stream": True, "stream_options": {"include_usage": True}})
                    whole = await http_client.post(url, "/v1/completions", body)
                self.assertEqual(whole.comparable(), streamed.comparable(), body)
                return whole

            return await asyncio.gather(*(both(body) for body in bodies))

        with cluster() as one:
            answers = asyncio.run(run(one.url))
        stopped = 0
        for body, answer in zip(bodies, answers):
            self.assertEqual((200, None), (answer.status, answer.error), body)
            text = answer.texts[0]
            stopped += answer.finish_reasons[0] == "stop"
            if not body["include_stop_str_in_output"] and not body["min_tokens"]:
                self.assertFalse([s for s in body["stop"] if s in text], (body, text))
        self.assertGreater(stopped, NUM_SETS // 5)


if __name__ == "__main__":
    unittest.main()
