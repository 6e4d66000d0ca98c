"""/metrics under vLLM's names: exactly its names, types, labels and buckets (V1 engine), and what reads them finds it.

Its own dashboard asks by model_name and expects one series; the scorers of the Kubernetes Gateway API inference
extension read the queue, KV use, adapters and cache size of each server.
"""
import asyncio
import re
import unittest

from prometheus_server import DEPLOY_DIR  # noqa: F401  (sets the path of what follows)

import http_client
from cluster import cluster, get
from workload import make_requests

MODEL = "tiny-gemma3"
MAX_CONTEXT = 1024
FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
               640.0, 2560.0]
TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0]
REQUEST = [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0]
COUNT = [bound for bound in (digit * 10.0 ** power for power in range(7) for digit in (1, 2, 5)) if bound <= MAX_CONTEXT]
STEP = [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0]

GAUGES = {"num_requests_running": {}, "num_requests_waiting": {}, "kv_cache_usage_perc": {}, "gpu_cache_usage_perc": {},
          "num_requests_waiting_by_reason": {"reason": {"capacity", "deferred"}},
          "engine_sleep_state": {"sleep_state": {"awake", "weights_offloaded", "discard_all"}}}
COUNTERS = {"prefix_cache_queries_total": {}, "prefix_cache_hits_total": {}, "gpu_prefix_cache_queries_total": {},
            "gpu_prefix_cache_hits_total": {}, "num_preemptions_total": {}, "prompt_tokens_total": {}, "prompt_tokens_cached_total": {},
            "generation_tokens_total": {},
            "prompt_tokens_by_source_total": {"source": {"local_compute", "local_cache_hit", "external_kv_transfer"}},
            "request_success_total": {"finished_reason": {"stop", "length", "abort", "error", "repetition"}}}
HISTOGRAMS = {"request_prompt_tokens": COUNT, "request_generation_tokens": COUNT, "request_max_num_generation_tokens": COUNT,
              "request_params_max_tokens": COUNT, "request_prefill_kv_computed_tokens": COUNT, "request_params_n": [1.0, 2.0, 5.0, 10.0, 20.0],
              "iteration_tokens_total": STEP, "time_to_first_token_seconds": FIRST_TOKEN, "inter_token_latency_seconds": TOKEN,
              "time_per_output_token_seconds": TOKEN, "request_time_per_output_token_seconds": TOKEN, "e2e_request_latency_seconds": REQUEST,
              "request_queue_time_seconds": REQUEST, "request_inference_time_seconds": REQUEST, "request_prefill_time_seconds": REQUEST,
              "request_decode_time_seconds": REQUEST}
INFOS = ("cache_config_info", "lora_requests_info")


def parse(text):
    """{family: type}, [(name, labels, value)] of what has vLLM's prefix, which is left off."""
    types = dict(re.findall(r"^# TYPE vllm:(\S+) (\S+)$", text, re.M))
    samples = [(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value))
               for name, labels, value in re.findall(r"^vllm:([^{ ]+)\{(.*)\} (\S+)$", text, re.M)]
    return types, samples


class VllmNamesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        async def run(url):
            await asyncio.gather(*(http_client.post(url, *request) for request in make_requests(24, seed=4, max_tokens=60)))
        with cluster(2) as one:
            asyncio.run(run(one.url))
            cls.text = get(one.url + "/metrics")
        cls.types, cls.samples = parse(cls.text)

    def labels_of(self, name):
        return [labels for n, labels, _ in self.samples if n == name]

    def value(self, name, **labels):
        (value,) = [v for n, has, v in self.samples if n == name and labels.items() <= has.items()]
        return value

    def test_families_and_types(self):
        expected = {**dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(INFOS, "gauge"), **dict.fromkeys(COUNTERS, "counter"),
                    **dict.fromkeys(HISTOGRAMS, "histogram")}
        self.assertEqual(expected, self.types)

    def test_labels(self):
        for name, more in {**GAUGES, **COUNTERS}.items():
            found = self.labels_of(name)
            self.assertEqual(max([1, *map(len, more.values())]), len(found), name)
            for labels in found:
                self.assertEqual({"model_name", "engine", *more}, set(labels), name)
                self.assertEqual((MODEL, "0"), (labels["model_name"], labels["engine"]))
            for label, values in more.items():
                self.assertEqual(values, {labels[label] for labels in found}, name)

    def test_buckets_as_the_python_client_writes_them(self):
        for name, bounds in HISTOGRAMS.items():
            labels = self.labels_of(name + "_bucket")
            self.assertEqual([repr(bound) for bound in bounds] + ["+Inf"], [one["le"] for one in labels], name)
            counts = [v for n, _, v in self.samples if n == name + "_bucket"]
            self.assertEqual(sorted(counts), counts, name)
            self.assertEqual(counts[-1], self.value(name + "_count"), name)
            self.assertGreater(counts[-1], 0, name)

    def test_what_the_inference_extension_reads(self):
        self.assertEqual(0, self.value("num_requests_waiting"))
        self.assertTrue(0 <= self.value("kv_cache_usage_perc") <= 1)
        cache, = self.labels_of("cache_config_info")
        self.assertEqual(int(cache["block_size"]) * int(cache["num_gpu_blocks"]), int(cache["kv_cache_size_tokens"]))
        adapters, = self.labels_of("lora_requests_info")
        self.assertEqual({"max_lora": "0", "running_lora_adapters": "", "waiting_lora_adapters": ""}, adapters)

    def test_one_flag_switches_them_off(self):
        with cluster(router_args=("--vllm-metrics", "off")) as one:
            self.assertNotIn("vllm:", get(one.url + "/metrics"))
            self.assertIn("weightless_ttft_seconds_bucket", get(one.url + "/metrics"))

    def test_the_served_name_is_the_label(self):
        with cluster(router_args=("--served-model-name", "gemma")) as one:
            self.assertIn('vllm:num_requests_running{engine="0",model_name="gemma"}', get(one.url + "/metrics"))


if __name__ == "__main__":
    unittest.main()
