"""Writes quant_blocks.bin: random blocks of every quantised type and the values the Python package
gguf expands them to, for tests/model/quant_blocks_test.cc.

Layout, for each type, little endian: name (8 bytes, zero padded), u32 block count, the blocks, the
values as float32. Usage: python tests/golden/make_quant_blocks.py
"""

import pathlib
import struct

import numpy as np
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES

# Where the fp16 fields of a block lie: any bit pattern is allowed elsewhere.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def main():
    random = np.random.default_rng(7)
    special = np.array([0.0, -0.0, 6e-8, -6e-5, 65504.0], np.float16)  # zeros, denormals, largest
    out = bytearray()
    for name, offsets in HALVES.items():
        qtype = GGMLQuantizationType[name]
        block_size, block_bytes = GGML_QUANT_SIZES[qtype]
        count = 8 if block_size == 32 else 3
        blocks = random.integers(0, 256, (count, block_bytes), np.uint8)
        for row, block in enumerate(blocks):
            for offset in offsets:
                half = np.float16(random.standard_normal() * 0.01)
                if row >= count - 2:
                    half = random.choice(special)
                block[offset : offset + 2] = np.frombuffer(half.tobytes(), np.uint8)
        values = quants.dequantize(blocks, qtype).astype("<f4")
        out += struct.pack("<8sI", name.encode(), count) + blocks.tobytes() + values.tobytes()
    (pathlib.Path(__file__).parent / "quant_blocks.bin").write_bytes(out)


if __name__ == "__main__":
    main()
