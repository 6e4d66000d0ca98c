"""What the counters owe each other, after loads with killed workers, clients that leave and requests that fail."""
import asyncio
import json
import random
import re
import signal
import time
import unittest

from prometheus_server import DEPLOY_DIR  # noqa: F401  (sets the path of what follows)

import http_client
from cluster import cluster, get, metric
from workload import make_requests

ENDED = ("stop", "length", "tool_calls", "error", "aborted")
QUIET_WITHIN_S = 10


class Snapshot:
    """All samples of /metrics; a family's value is the sum over its label sets that contain the given labels."""

    def __init__(self, url):
        self.samples = []
        for line in get(url + "/metrics").splitlines():
            if line and not line.startswith("#"):
                name, labels, value = re.fullmatch(r"([^{ ]+)(?:\{(.*)\})? (\S+)", line).groups()
                self.samples.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))

    def __call__(self, name, **labels):
        found = [v for n, has, v in self.samples if n == name and labels.items() <= has.items()]
        assert found, f"no series {name} {labels}"
        return sum(found)

    def counts(self):
        """All samples but those of the process and of HTTP, which looking changes, and one that is a time."""
        changing = re.compile("process_|weightless_(http|connections)|vllm:lora_requests_info")
        return [sample for sample in self.samples if not changing.match(sample[0])]

    def ended(self):
        return sum(self("weightless_requests_total", outcome=outcome) for outcome in ENDED)


class MetricsLawsTest(unittest.TestCase):
    def quiet(self, url):
        """Waits until nothing runs; all gauges must come down by themselves, without a further request. Results of steps may
        still arrive then, and while a snapshot is taken: two in a row that agree were taken while nothing changed."""
        end = time.monotonic() + QUIET_WITHIN_S
        gauges = ("weightless_requests_running", "weightless_running_sequences", "weightless_queued_sequences",
                  "weightless_worker_running_sequences", "weightless_kv_blocks_used", "weightless_kv_used_ratio")
        before = None
        while True:
            now = Snapshot(url)
            left = {name: now(name) for name in gauges if now(name) != 0}
            if not left and before is not None and now.counts() == before.counts():
                return now
            self.assertLess(time.monotonic(), end, left or "counters go on")
            before = now
            time.sleep(0.02)

    def check_laws(self, m):
        """Hold whatever happened, when nothing runs."""
        self.assertEqual(m("weightless_requests_started_total"), m.ended() + m("weightless_requests_running"))
        self.assertEqual(m.ended(), m("weightless_e2e_seconds_count"))
        self.assertEqual(m.ended(), m("weightless_request_output_tokens_count"))
        self.assertEqual(m.ended(), m("weightless_request_prompt_tokens_count"))
        self.assertEqual(m("weightless_generated_tokens_total"), m("weightless_request_output_tokens_sum"))
        self.assertLessEqual(m("weightless_generated_tokens_total"), m("weightless_sampled_tokens_total"))
        self.assertLessEqual(m("weightless_cached_tokens_total"), m("weightless_prefix_queried_tokens_total"))
        self.assertLessEqual(m("weightless_prompt_tokens_total"), m("weightless_prefix_queried_tokens_total"))
        self.assertLessEqual(m("weightless_ttft_seconds_count"), m("vllm:time_to_first_token_seconds_count"))
        without_token = m("weightless_request_output_tokens_bucket", le="0")
        self.assertEqual(m("vllm:time_to_first_token_seconds_count"), m.ended() - without_token)
        self.assertEqual(m("weightless_steps_total"), m("weightless_step_seconds_count"))
        self.assertEqual(m("weightless_step_tokens_sum"), m("weightless_prompt_tokens_total") + m("weightless_sampled_tokens_total"))
        for ours, theirs in (("weightless_requests_total", "vllm:request_success_total"),
                             ("weightless_generated_tokens_total", "vllm:generation_tokens_total"),
                             ("weightless_prompt_tokens_total", "vllm:prompt_tokens_total"),
                             ("weightless_itl_seconds_count", "vllm:inter_token_latency_seconds_count"),
                             ("weightless_step_tokens_sum", "vllm:iteration_tokens_total_sum"),
                             ("weightless_preemptions_total", "vllm:num_preemptions_total")):
            self.assertEqual(m(ours), m(theirs), ours)

    async def kill_workers(self, one, count):
        """While tokens flow, however slow the machine is."""
        for i, worker in enumerate(one.workers[:count]):
            while await asyncio.to_thread(metric, one.url, "weightless_sampled_tokens_total") < 1000 * (i + 1):
                await asyncio.sleep(0.01)
            worker.signal(signal.SIGKILL)

    def test_killed_workers(self):
        requests = make_requests(90, seed=11, max_tokens=300)

        async def run(one):
            tasks = [asyncio.create_task(http_client.post(one.url, path, body)) for path, body in requests]
            await self.kill_workers(one, 2)
            return await asyncio.gather(*tasks)

        with cluster(3, worker_args=("--num-slots", 24)) as one:
            answers = asyncio.run(run(one))
            m = self.quiet(one.url)
        self.check_laws(m)
        self.assertTrue(all(a.status == 200 and a.done and not a.error for a in answers))
        self.assertGreater(m("weightless_migrations_total"), 0)
        choices = sum(len(a.finish_reasons) for a in answers)
        self.assertEqual(len(requests), m("weightless_requests_started_total"))
        for outcome in ("stop", "length"):
            ended = sum("length" in a.finish_reasons.values() if outcome == "length" else set(a.finish_reasons.values()) == {"stop"}
                        for a in answers)
            self.assertEqual(ended, m("weightless_requests_total", outcome=outcome))
        self.assertEqual(len(requests), m("weightless_ttft_seconds_count"))
        self.assertEqual(len(requests), m("vllm:time_to_first_token_seconds_count"))
        output = sum(a.usage["completion_tokens"] for a in answers)
        self.assertEqual(output, m("weightless_generated_tokens_total"))
        self.assertEqual(output - choices, m("weightless_itl_seconds_count"))
        prompt = sum(a.usage["prompt_tokens"] * len(a.finish_reasons) for a in answers)
        self.assertEqual(prompt, m("weightless_prompt_tokens_total"))
        self.assertEqual(prompt, m("weightless_prefix_queried_tokens_total"))
        for histogram in ("queue", "prefill"):
            self.assertEqual(choices, m(f"weightless_{histogram}_seconds_count"))

    def test_clients_that_leave_and_killed_workers(self):
        rng = random.Random(12)
        requests = make_requests(120, seed=12, max_tokens=300)
        kinds = [rng.choice(("stay", "stay", "leave after content", "leave at once")) for _ in requests]

        async def leave(url, path, body, after_content):
            host, port = url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            data = json.dumps({**body, "stream": True}).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            await writer.drain()
            seen = False
            while after_content and not seen:
                line = await reader.readline()
                if not line:
                    break
                if line.startswith(b"data: {"):
                    choice, = json.loads(line[6:])["choices"] or [{}]
                    seen = bool(choice.get("text") or choice.get("delta", {}).get("content") or choice.get("finish_reason"))
            if not after_content:
                await asyncio.sleep(rng.random() * 0.1)
            writer.close()
            return seen

        async def run(one):
            url = one.url
            tasks = [asyncio.create_task(http_client.post(url, path, body) if kind == "stay" else
                                         leave(url, path, body, kind == "leave after content"))
                     for (path, body), kind in zip(requests, kinds)]
            await self.kill_workers(one, 1)
            return await asyncio.gather(*tasks)

        with cluster(2, worker_args=("--num-slots", 16)) as one:
            answers = asyncio.run(run(one))
            m = self.quiet(one.url)
        self.check_laws(m)
        stayed = [a for a, kind in zip(answers, kinds) if kind == "stay"]
        saw = sum(a for a, kind in zip(answers, kinds) if kind == "leave after content")
        blind = len(requests) - len(stayed) - saw
        self.assertTrue(all(a.status == 200 and a.done for a in stayed))
        # One that leaves at once may be gone before its request is read.
        self.assertLessEqual(len(stayed) + saw, m("weightless_requests_started_total"))
        self.assertLessEqual(m("weightless_requests_started_total"), len(requests))
        self.assertGreater(m("weightless_requests_total", outcome="aborted"), 0)
        self.assertLessEqual(m("weightless_requests_total", outcome="aborted"), saw + blind)
        self.assertLessEqual(len(stayed) + saw, m("weightless_ttft_seconds_count"))
        self.assertLessEqual(m("weightless_ttft_seconds_count"), len(requests))
        self.assertGreaterEqual(m("weightless_generated_tokens_total"), sum(a.usage["completion_tokens"] for a in stayed))

    def test_requests_that_fail(self):
        body = {"prompt": "ocean (noun):", "max_tokens": 900, "ignore_eos": True}

        async def run(url):
            late = [http_client.post(url, "/v1/completions", {**body, "stream": i % 2 == 0}) for i in range(8)]
            refused = [http_client.post(url, "/v1/completions", {**body, "max_tokens": -1}) for _ in range(3)]
            return await asyncio.gather(*late, *refused)

        with cluster(router_args=("--request-timeout", 0.05)) as one:
            answers = asyncio.run(run(one.url))
            m = self.quiet(one.url)
        self.check_laws(m)
        self.assertEqual(3, sum(a.status == 400 for a in answers))
        self.assertEqual(8, m("weightless_requests_started_total"))
        self.assertEqual(8, m("weightless_requests_total", outcome="error"))
        self.assertEqual(8, m("weightless_expired_sequences_total"))
        self.assertEqual(3, m("weightless_http_responses_total", **{"class": "4xx"}))

    def test_stop_strings_leave_nothing_behind(self):
        body = {"prompt": "ocean (noun):", "max_tokens": 500, "ignore_eos": True, "stop": ["e"], "temperature": 0}
        with cluster() as one:
            for round_ in range(20):
                answer = asyncio.run(http_client.post(one.url, "/v1/completions", {**body, "stream": round_ % 2 == 0}))
                self.assertEqual("stop", answer.finish_reasons[0])
                m = self.quiet(one.url)
        self.check_laws(m)
        self.assertEqual(20, m("weightless_requests_total", outcome="stop"))


if __name__ == "__main__":
    unittest.main()
