"""Requests of every kind for the exactness tests, the same for the same seed."""
import os
import random

from cluster import SOURCE_DIR

MAX_CONTEXT = 1024


def _heldout_words():
    with open(os.path.join(SOURCE_DIR, "tests", "golden", "tiny-heldout.txt"), encoding="utf-8") as file:
        return file.read().split()


def _sampling(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return {"temperature": 0}
    fields = {"temperature": rng.choice([0.5, 0.8, 1.0, 1.5]), "seed": rng.randrange(-2**40, 2**40)}
    if kind in (2, 5):
        fields["top_k"] = rng.choice([1, 5, 64])
    if kind in (3, 5):
        fields["top_p"] = rng.choice([0.1, 0.9, 0.99])
    if kind in (4, 5):
        fields["min_p"] = rng.choice([0.02, 0.2])
        fields["repetition_penalty"] = 1.1
        fields["presence_penalty"] = 0.4
        fields["frequency_penalty"] = 0.3
        fields["logit_bias"] = {str(rng.randrange(100, 4000)): rng.choice([-5, 4]) for _ in range(3)}
    return fields


def make_requests(count, seed, max_tokens=900, shared_prefixes=4):
    """(path, body) pairs: chats and completions, prompts of 1 to ~700 tokens, 1 to `max_tokens` output tokens, mixed sampling.

    Some prompts begin alike, so that a warm prefix cache is hit. Prompt and output fit MAX_CONTEXT.
    """
    rng = random.Random(seed)
    words = _heldout_words()
    prefixes = [" ".join(words[i * 150:i * 150 + rng.choice([40, 90, 140])]) for i in range(shared_prefixes)]
    requests = []
    for i in range(count):
        num_words = rng.choice([1, 3, 10, 30, 60, 120])
        start = rng.randrange(len(words) - num_words)
        text = " ".join(words[start:start + num_words])
        if rng.random() < 0.5:
            text = rng.choice(prefixes) + " " + text
        prompt_bound = len(text.encode()) + 40  # a token is at least a byte
        output = min(rng.choice([1, 2, 17, 64, 150, 400, max_tokens]), MAX_CONTEXT - prompt_bound)
        if output < 1:
            text, output = text[:200], min(max_tokens, 700)
        body = {"max_tokens": output, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True,
                "ignore_eos": rng.random() < 0.6, **_sampling(rng)}
        if rng.random() < 0.5:
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "user", "content": text}]
            if rng.random() < 0.2:
                body.update(logprobs=True, top_logprobs=rng.choice([0, 2, 5]))
        else:
            path = "/v1/completions"
            body["prompt"] = text
            if rng.random() < 0.2:
                body["logprobs"] = rng.choice([0, 3])
        if rng.random() < 0.1:
            body["n"] = 2
        if rng.random() < 0.2:
            body["stop"] = rng.sample(["ing", " the ", "; ", "of a", "qz"], 2)
        requests.append((path, body))
    return requests
