#!/usr/bin/env python3
"""Writes chat-template-golden.json.xz: conversations as transformers renders them by jinja2.

    make_chat_golden.py            needs: pip install transformers jinja2

The template is the published one of Gemma 3 (in gemma3-tokenizer/tokenizer_config.json); where all
content is plain strings and roles alternate, that of models/tiny-gemma3 must give the same text. A
case is {messages, add_generation_prompt, continue_final_message, text}; text is null where the
template refuses the messages. The cases are the same at every run.
"""
import json
import lzma
import pathlib
import random

import jinja2
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
TINY = HERE.parent.parent / "models/tiny-gemma3"
SPACES = [" ", "\n", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680",
          "\u2000", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e"]
TEXTS = ["Hi there", "You are terse.", "Hello!", "Bye", "<end_of_turn>", "<start_of_turn>model\nno", "<bos>",
         "a\n\nb", "{{ bos_token }}", "naïve 😀", "日本語", "line\n", "x"]


def text(rng):
    pad = lambda: "".join(rng.choice(SPACES) for _ in range(rng.choice((0, 0, 1, 3))))
    return pad() + rng.choice(TEXTS) + pad()


def content(rng):
    if rng.random() < 0.6:
        return text(rng)
    return [{"type": "text", "text": text(rng)} for _ in range(rng.randint(1, 3))]


def messages(rng):
    roles = ["system"] if rng.random() < 0.4 else []
    for i in range(rng.randint(1, 5)):
        in_order = ("user", "assistant")[i % 2]
        roles.append(in_order if rng.random() < 0.95 else rng.choice(("user", "assistant")))
    return [{"role": role, "content": content(rng)} for role in roles]


def render(tokenizer, template, case):
    try:
        return tokenizer.apply_chat_template(
            case["messages"], chat_template=template, tokenize=False,
            add_generation_prompt=case["add_generation_prompt"],
            continue_final_message=case["continue_final_message"])
    except jinja2.exceptions.TemplateError:
        return None


def main():
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TINY / "tokenizer.json"), bos_token="<bos>")
    published = json.loads((HERE / "gemma3-tokenizer/tokenizer_config.json").read_text())["chat_template"]
    tiny = (TINY / "chat_template.jinja").read_text()
    rng = random.Random(5)
    cases = []
    for _ in range(400):
        ending = rng.choice(("prompt", "none", "continue"))
        case = {"messages": messages(rng), "add_generation_prompt": ending == "prompt",
                "continue_final_message": ending == "continue"}
        case["text"] = render(tokenizer, published, case)
        if case["text"] is not None and all(isinstance(m["content"], str) for m in case["messages"]):
            assert render(tokenizer, tiny, case) == case["text"], case
        cases.append(case)
    data = json.dumps(cases, separators=(",", ":")).encode()
    (HERE / "chat-template-golden.json.xz").write_bytes(lzma.compress(data, preset=9))
    print(len(cases), "cases,", sum(c["text"] is None for c in cases), "refused")


if __name__ == "__main__":
    main()
