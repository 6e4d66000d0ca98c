"""Writes the seeds of the step plan fuzzer: chains of plans, from their text form by protoc.

Usage, from the repository root: python3 tests/fuzz/make_plan_corpus.py
"""

import pathlib
import struct
import subprocess

CORPUS = pathlib.Path(__file__).parent / "corpus" / "step_plan"

TOKENS = "tokens: [2, 30, 31, 32, 33, 34, 35, 36, 37, 38]"
BLOCKS = "grow { slot: 1 pool: POOL_FULL blocks: [3, 4] } grow { slot: 1 pool: POOL_SLIDING blocks: [5, 6] }"

CHAINS = {
    "decode": [
        f"admit {{ slot: 1 {TOKENS} num_prompt_tokens: 10 }} {BLOCKS} prefill {{ slot: 1 num_tokens: 10 }}",
        "decode { slots: [1] }",
        "",
        "release: 1",
    ],
    "chunks": [
        f"admit {{ slot: 1 {TOKENS} num_prompt_tokens: 6 prompt_logprobs: 2 }} {BLOCKS} prefill {{ slot: 1 num_tokens: 4 }}",
        "prefill { slot: 1 num_tokens: 6 } decode { }",
        "decode { slots: [1, 2] } grow { slot: 1 pool: POOL_FULL first: 2 blocks: [8] }",
    ],
    "sampling": [
        f"""admit {{ slot: 1 {TOKENS} num_prompt_tokens: 10 sampling {{
              temperature: 0.7 top_k: 40 top_p: 0.9 min_p: 0.1 repetition_penalty: 1.1 presence_penalty: -1
              frequency_penalty: 1 logit_bias {{ token: 5 bias: -3 }} seed: -4 logprobs: 3 stop_token_ids: [1, 7]
              min_tokens: 2 }} }} {BLOCKS} prefill {{ slot: 1 num_tokens: 10 }}""",
        "decode { slots: [1] }",
        "release: 1 admit { slot: 1 tokens: 2 num_prompt_tokens: 1 }",
    ],
}


def encode(text):
    command = ["protoc", "--encode=weightless.proto.StepPlan", "proto/worker.proto"]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


CORPUS.mkdir(parents=True, exist_ok=True)
for name, plans in CHAINS.items():
    wire = [encode(plan) for plan in plans]
    (CORPUS / name).write_bytes(b"".join(struct.pack("<H", len(plan)) + plan for plan in wire))
