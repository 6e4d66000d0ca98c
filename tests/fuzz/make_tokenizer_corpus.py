"""Writes the seeds of the tokenizer fuzzers: one small vocabulary in each format, and texts.

Usage: python tests/fuzz/make_tokenizer_corpus.py
"""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
ADDED = ["\n", "\n\n", "▁▁▁"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
NORMAL = ["ab", "▁a", "▁▁", "abab", "the", "th", "a", "b", "e", "h", "t", "▁", "é", "中"]
MERGES = [["a", "b"], ["▁", "a"], ["▁", "▁"], ["ab", "ab"], ["th", "e"], ["t", "h"]]
PIECES = ([(p, 3, 0.0) for p in CONTROL] + [(p, 4, 0.0) for p in ADDED] + [(p, 6, 0.0) for p in BYTES] +
          [(p, 1, -float(i)) for i, p in enumerate(NORMAL)])


def tokenizer_json():
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return json.dumps({
        "added_tokens": [{"id": i, "content": p, "special": kind == 3, **flags}
                         for i, (p, kind, _) in enumerate(PIECES) if kind in (3, 4)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                          "invert": False},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {p: i for i, (p, _, _) in enumerate(PIECES)}, "merges": MERGES}},
        ensure_ascii=False, separators=(",", ":")).encode()


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def tokenizer_model():
    pieces = b"".join(field(1, field(1, p.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind))
                      for p, kind, score in PIECES)
    return pieces + field(2, b"\x18\x02") + field(3, field(1, b"identity") + b"\x18\x00\x20\x00")


def gguf():
    string = lambda text: struct.pack("<Q", len(text.encode())) + text.encode()
    array = lambda name, kind, items: (string("tokenizer.ggml." + name) + struct.pack("<IIQ", 9, kind, len(items)) +
                                       b"".join(items))
    return (b"GGUF" + struct.pack("<IQQ", 3, 0, 4) + string("tokenizer.ggml.model") + struct.pack("<I", 8) +
            string("llama") + array("tokens", 8, [string(p.replace("▁", " ") if k == 4 else p) for p, k, _ in PIECES]) +
            array("scores", 6, [struct.pack("<f", s) for _, _, s in PIECES]) +
            array("token_type", 5, [struct.pack("<i", k) for _, k, _ in PIECES]))


def write(path, data):
    path = CORPUS / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


write("tokenizer_json/small.json", tokenizer_json())
write("tokenizer_sentencepiece/small.model", tokenizer_model())
write("tokenizer_gguf/small.gguf", gguf())
write("tokenizer_text/words.txt", "the abab  heée ababab\n\n\n\nthe <bos><end_of_turn> \t ▁▁".encode())
write("tokenizer_text/bytes.bin", bytes(range(256)))
