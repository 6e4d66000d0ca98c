#!/usr/bin/env python3
"""Holds our logits against transformers on the same weights, position by position.

    compare_logits.py reference CHECKPOINT_DIR IDS.json REF.npy    run transformers in float32, eager attention
    compare_logits.py compare REF.npy OURS.f32                     OURS.f32 is what dump_logits wrote

needs: pip install numpy torch transformers (reference only). A GGUF becomes a checkpoint by dequantising it to float32.
"""
import json
import sys

import numpy as np

LIMITS = {"argmax_share": 0.99, "logprob_difference": 0.05}


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def reference(checkpoint, ids_path, out_path):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    with open(ids_path) as file:
        sequences = json.load(file)
    with torch.no_grad():
        rows = [model(torch.tensor([ids])).logits[0].numpy() for ids in sequences]
    np.save(out_path, np.concatenate(rows))


def compare(ref_path, ours_path):
    ref = np.load(ref_path, mmap_mode="r")
    ours = np.memmap(ours_path, dtype=np.float32, mode="r").reshape(ref.shape)
    same, worst, worst_top = 0, 0.0, 0.0
    for r, o in zip(ref, ours):
        assert np.isfinite(o).all()
        lr, lo = log_softmax(r[None])[0], log_softmax(o[None])[0]
        same += int(r.argmax() == o.argmax())
        difference = np.abs(lr - lo)
        worst = max(worst, difference.max())
        worst_top = max(worst_top, difference[lr > -10].max())
    share = same / len(ref)
    print(f"{len(ref)} positions: argmax equal at {100 * share:.2f} %, largest logprob difference {worst:.5f} over the whole "
          f"vocabulary, {worst_top:.5f} where the reference is above -10")
    return share >= LIMITS["argmax_share"] and worst < LIMITS["logprob_difference"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["reference"] and len(sys.argv) == 5:
        reference(*sys.argv[2:])
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 4:
        sys.exit(0 if compare(*sys.argv[2:]) else 1)
    else:
        sys.exit(__doc__)
