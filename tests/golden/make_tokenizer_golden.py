#!/usr/bin/env python3
"""Writes tokenizer-golden.json.xz: what the `tokenizers` library encodes, for both tokenizers here.

    make_tokenizer_golden.py            needs: pip install tokenizers

The file holds 2,000 generated lines and, for the tiny model ("tiny") and the published Gemma 3
tokenizer ("gemma3"), one hash per text: the 32-bit FNV-1a of the ids as little-endian int32. Texts
are the lines, the lines of tiny-heldout.txt, and last the whole of that file as one text. No BOS is
added and special tokens are parsed. The lines are the same at every run.
"""
import json
import lzma
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
TINY = HERE.parent.parent / "models/tiny-gemma3/tokenizer.json"
GEMMA3 = HERE / "gemma3-tokenizer/tokenizer.json.xz"

SCRIPTS = [  # inclusive ranges of code points
    (0x20, 0x7E), (0x41, 0x5A), (0x61, 0x7A), (0x30, 0x39), (0xA0, 0x17F), (0x300, 0x36F),
    (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0xF00, 0xFFF), (0x10A0, 0x10FF),
    (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1E00, 0x1FFF), (0x2000, 0x206F),
    (0x2070, 0x20CF), (0x2100, 0x23FF), (0x2500, 0x27BF), (0x3000, 0x30FF), (0x3400, 0x3500),
    (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFB50, 0xFDFF),
    (0xFE00, 0xFE0F), (0xFF00, 0xFFFF), (0x10000, 0x1007F), (0x10780, 0x107BF), (0x12000, 0x120FF),
    (0x1D400, 0x1D7FF), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F9FF), (0x20000, 0x2A6DF),
    (0xE0000, 0xE007F), (0x10FF00, 0x10FFFF),
]
EMOJI = ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇳🇴", "1️⃣", "🙂", "👨🏿‍🚀", "❤️‍🔥", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]
MARKUP = [
    "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "[multimodal]", "<start_of_turn>", "<end_of_turn>",
    "<start_of_image>", "<end_of_image>", "<unused7>", "<unused99>", "<unused6241>",
    "<table>", "</table>", "<td>", "<h1>", "</strong>", "<unused", "<start_of_turn", "<0x41>", "<0x0A>",
    "<0xFF>", "▁", "▁▁", "▁▁▁ ", " ▁", "▁the", "&lt;bos&gt;",
]
WORDS = ("the of and capital France is return def class Überraschung naïve façade 12345 3.14159 0xDEADBEEF "
         "don't e-mail https://example.org/a?b=c&d=%20 {\"key\": [1, 2]} antidisestablishmentarianism "
         "CamelCase snake_case ALLCAPS привет мир שלום العربية हिन्दी ภาษาไทย 日本語 한국어 中文字 ελληνικά").split(" ")


def code_points(rng, count):
    low, high = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(low, high)) for _ in range(count))


def part(rng, pieces):
    kind = rng.randrange(10)
    if kind == 0:
        return code_points(rng, rng.randint(1, 20))
    if kind == 1:
        return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 8))).replace("▁", " ")
    if kind == 2:
        return rng.choice(EMOJI)
    if kind == 3:
        return "".join(chr(rng.choice((0, 1, 7, 8, 11, 12, 13, 27, 127, 0x85, 0x200B, 0xFEFF, 0xFFFD)))
                       for _ in range(rng.randint(1, 4)))
    if kind == 4:
        return rng.choice(MARKUP)
    if kind == 5:
        return rng.choice(" \n\t▁") * rng.choice((1, 2, 3, 7, 30, 31, 32, 33, 40, 62, 63))
    if kind == 6:
        return rng.choice("aAzl0-=_.*#/😀é中") * rng.randint(2, 70)
    if kind == 7:  # repeated periods make merges compete
        return "".join(rng.choice("abn") for _ in range(rng.randint(1, 3))) * rng.randint(2, 20)
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 6)))


def fnv1a(ids):
    value = 0x811C9DC5
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def main():
    tokenizers = {"tiny": Tokenizer.from_file(str(TINY)),
                  "gemma3": Tokenizer.from_str(lzma.decompress(GEMMA3.read_bytes()).decode())}
    rng = random.Random(20260301)
    pieces = [p for t in tokenizers.values() for p in sorted(t.get_vocab()) if not p.startswith("<")]
    lines = ["".join(part(rng, pieces) for _ in range(rng.randint(1, 5))) for _ in range(2000)]
    heldout = (HERE / "tiny-heldout.txt").read_bytes().decode()
    texts = lines + heldout.removesuffix("\n").split("\n") + [heldout]
    golden = {"lines": lines}
    for name, tokenizer in tokenizers.items():
        golden[name] = [fnv1a(tokenizer.encode(t, add_special_tokens=False).ids) for t in texts]
    data = json.dumps(golden, ensure_ascii=True, separators=(",", ":")).encode()
    (HERE / "tokenizer-golden.json.xz").write_bytes(lzma.compress(data, preset=9))


if __name__ == "__main__":
    main()
