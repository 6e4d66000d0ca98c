"""The official openai client, unmodified, against a router and a worker."""
import sys
import tempfile
import unittest

try:
    import openai
except ImportError:
    print("skipped: the package openai is not installed for this Python")
    sys.exit(77)

from cluster import cluster

QUESTION = [{"role": "user", "content": "Define: ocean"}]
KEY = "sk-test-1"


def text_of(chunks):
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        cls.keys.write(f"tester:{KEY}\n")
        cls.keys.flush()
        cls.running = cluster(router_args=("--api-key-file", cls.keys.name))
        cls.url = cls.running.__enter__().url + "/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key=KEY, max_retries=0, timeout=60)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.running.__exit__(None, None, None)
        cls.keys.close()

    def chat(self, **kwargs):
        kwargs.setdefault("messages", QUESTION)
        kwargs.setdefault("temperature", 0)
        return self.client.chat.completions.create(model=self.model, **kwargs)

    def complete(self, **kwargs):
        kwargs.setdefault("temperature", 0)
        return self.client.completions.create(model=self.model, **kwargs)

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody")

    def test_chat(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertIn("body of water", choice.message.content)
        self.assertEqual((choice.message.role, choice.finish_reason), ("assistant", "stop"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertIsNotNone(usage.prompt_tokens_details.cached_tokens)
        self.assertTrue(answer.system_fingerprint)

    def test_chat_stream_says_the_same(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(text_of(chunks), whole.choices[0].message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], whole.usage.completion_tokens))
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)

    def test_stream_helper_accumulates(self):
        with self.client.chat.completions.stream(model=self.model, messages=QUESTION, temperature=0) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertIn("body of water", final.choices[0].message.content)

    def test_parts_and_system_message(self):
        parts = [{"type": "text", "text": "Define: "}, {"type": "text", "text": "ocean"}]
        answer = self.chat(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}],
                           max_completion_tokens=3)
        self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 3))

    def test_chat_logprobs(self):
        choice = self.chat(logprobs=True, top_logprobs=3, max_tokens=5).choices[0]
        entries = choice.logprobs.content
        self.assertEqual(len(entries), 5)
        self.assertEqual("".join(entry.token for entry in entries), choice.message.content)
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.logprob, entry.top_logprobs[0].logprob)  # greedy
            self.assertEqual(bytes(entry.bytes).decode(), entry.token)
        streamed = [entry for chunk in self.chat(logprobs=True, top_logprobs=3, max_tokens=5, stream=True)
                    if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
        self.assertEqual(streamed, entries)

    def test_n_choices_differ_by_seed_and_repeat(self):
        def texts(n, seed):
            answer = self.complete(prompt="a", n=n, temperature=1.5, seed=seed, max_tokens=12)
            self.assertEqual([choice.index for choice in answer.choices], list(range(n)))
            return [choice.text for choice in answer.choices]
        first = texts(3, 11)
        self.assertEqual(first, texts(3, 11))
        self.assertGreater(len(set(first)), 1)
        self.assertEqual(texts(1, 12), first[1:2])

    def test_greedy_choices_are_equal(self):
        self.assertEqual(len({choice.message.content for choice in self.chat(n=3).choices}), 1)

    def test_n_choices_stream(self):
        texts = ["", ""]
        for chunk in self.chat(n=2, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts[0], texts[1])
        self.assertIn("body of water", texts[0])

    def test_stop(self):
        choice = self.chat(stop=["body"]).choices[0]
        self.assertTrue(choice.message.content.endswith("large "))
        self.assertEqual(choice.finish_reason, "stop")

    def test_extensions(self):
        answer = self.chat(max_tokens=4, extra_body={"return_token_ids": True, "top_k": 1, "ignore_eos": True,
                                                     "prompt_logprobs": 1})
        self.assertEqual(len(answer.choices[0].token_ids), 4)
        self.assertEqual(len(answer.prompt_token_ids), answer.usage.prompt_tokens)
        self.assertEqual(len(answer.prompt_logprobs), answer.usage.prompt_tokens)
        self.assertIsNone(answer.prompt_logprobs[0])

    def test_completions(self):
        answer = self.complete(prompt=["ocean (noun):", "sea (noun):"], max_tokens=6, n=2)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual(answer.choices[0].text, answer.choices[1].text)
        self.assertEqual(answer.usage.completion_tokens, 24)
        self.assertEqual(self.complete(prompt="ocean", extra_body={"ignore_eos": True}).usage.completion_tokens, 16)

    def test_completion_stream(self):
        whole = self.complete(prompt="ocean (noun):", max_tokens=9).choices[0].text
        chunks = self.complete(prompt="ocean (noun):", max_tokens=9, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), whole)

    def test_echo_scores_the_prompt(self):
        choice = self.complete(prompt="The ocean", max_tokens=0, echo=True, logprobs=2).choices[0]
        self.assertEqual((choice.text, choice.finish_reason), ("The ocean", "length"))
        logprobs = choice.logprobs
        self.assertEqual(logprobs.tokens[0], "<bos>")
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(value < 0 for value in logprobs.token_logprobs[1:]))
        for offset, token in list(zip(logprobs.text_offset, logprobs.tokens))[1:]:
            self.assertEqual(choice.text[offset:offset + len(token)], token)

    def test_token_prompts_are_used_as_given(self):
        with_text = self.complete(prompt="The ocean", max_tokens=5, extra_body={"return_token_ids": True}).choices[0]
        with_ids = self.complete(prompt=with_text.prompt_token_ids, max_tokens=5).choices[0]
        self.assertEqual(with_ids.text, with_text.text)

    def assert_bad_request(self, code, param, **kwargs):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(**kwargs)
        self.assertEqual((raised.exception.code, raised.exception.param), (code, param))

    def test_bad_requests(self):
        self.assert_bad_request("out_of_range", "temperature", temperature=3)
        self.assert_bad_request("invalid_type", "n", n="2")
        self.assert_bad_request("context_length_exceeded", "max_tokens", max_tokens=100000)
        self.assert_bad_request("unsupported_field", "tools", tools=[{"type": "function", "function": {"name": "f"}}])
        self.assert_bad_request("unsupported_field", "response_format", response_format={"type": "json_object"})
        self.assert_bad_request("missing_field", "messages", messages=[])
        self.assert_bad_request("invalid_value", "messages", messages=[{"role": "assistant", "content": "a"}])

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.chat.completions.create(model="nobody", messages=QUESTION)
        self.assertEqual(raised.exception.code, "model_not_found")

    def test_wrong_key(self):
        with openai.OpenAI(base_url=self.url, api_key="wrong", max_retries=0) as client:
            with self.assertRaises(openai.AuthenticationError) as raised:
                client.models.list()
        self.assertEqual(raised.exception.code, "invalid_api_key")

    def test_leaving_a_stream_is_fine(self):
        stream = self.chat(stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertIn("body of water", self.chat().choices[0].message.content)


if __name__ == "__main__":
    unittest.main()
