#!/usr/bin/env python3
"""Holds our logits against transformers on the same weights, position by position.

    compare_logits.py checkpoint MODEL.gguf DIR                dequantise a Gemma 3 270M or 1B to a float32 Hugging Face folder
    compare_logits.py ids IDS.json                             three texts as ids of the published tokenizer: 1,200, 400 and 400
    compare_logits.py reference DIR IDS.json REF.npy [DTYPE]   run transformers, eager attention, in float32 or bfloat16
    compare_logits.py compare REF.npy OURS.f32                 OURS.f32 is what dump_logits wrote; a .npy does, too

`compare` exits with 1 when a limit of float32 is missed, or with fewer than 2,000 positions.

needs: pip install gguf numpy safetensors tokenizers torch transformers (`compare`: numpy alone)
"""
import json
import lzma
import pathlib
import sys

import numpy as np

LIMITS = {"num_positions": 2000, "argmax_share": 0.99, "logprob_difference": 0.05}
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
BOS = 2
PATTERN = 6  # each so many layers one is global

LAYER_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def hugging_face_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_PARTS[part]}.weight"


def model_config(fields, vocab_size):
    def get(key):
        return fields["gemma3." + key].contents()
    if any(key.startswith("gemma3.rope.scaling") for key in fields):
        sys.exit("rope scaling, so a larger Gemma 3: not supported here")
    num_layers = get("block_count")
    return {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "dtype": "float32", "vocab_size": vocab_size,
        "hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length"), "num_hidden_layers": num_layers,
        "num_attention_heads": get("attention.head_count"), "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": get("attention.key_length"), "query_pre_attn_scalar": get("attention.key_length"),
        "sliding_window": get("attention.sliding_window"), "max_position_embeddings": get("context_length"),
        "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        "layer_types": ["sliding_attention" if (i + 1) % PATTERN else "full_attention" for i in range(num_layers)],
        "rope_parameters": {"full_attention": {"rope_theta": get("rope.freq_base"), "rope_type": "default"},
                            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
        "bos_token_id": BOS, "eos_token_id": 1, "pad_token_id": 0}


def checkpoint(gguf_path, out):
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file
    reader = GGUFReader(gguf_path)
    tensors = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if "norm" in tensor.name:
            weights -= 1  # a GGUF holds 1 + w, a checkpoint w
        tensors[hugging_face_name(tensor.name)] = np.ascontiguousarray(weights)
    config = model_config(reader.fields, len(tensors["model.embed_tokens.weight"]))
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1))


def ids(out_path):
    """Legal English (longer than the sliding window), definitions, and lines of many scripts, each from BOS on."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(lzma.decompress((GOLDEN / "gemma3-tokenizer/tokenizer.json.xz").read_bytes()).decode())
    lines = json.loads(lzma.decompress((GOLDEN / "tokenizer-golden.json.xz").read_bytes()))["lines"]
    texts = [((GOLDEN.parent.parent / "LICENSE").read_text(), 1200), ((GOLDEN / "tiny-heldout.txt").read_text(), 400),
             ("\n".join(lines[:100]), 400)]
    sequences = [([BOS] + tokenizer.encode(text, add_special_tokens=False).ids)[:length] for text, length in texts]
    assert [len(s) for s in sequences] == [length for _, length in texts]
    pathlib.Path(out_path).write_text(json.dumps(sequences))


def reference(directory, ids_path, out_path, dtype="float32"):
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype), attn_implementation="eager").eval()
    with open(ids_path) as file:
        sequences = json.load(file)
    with torch.no_grad():
        rows = [model(torch.tensor([s])).logits[0].float().numpy() for s in sequences]
    np.save(out_path, np.concatenate(rows))


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max()
    return logits - np.log(np.exp(logits).sum())


def compare(ref_path, ours_path):
    ref = np.load(ref_path, mmap_mode="r")
    if ours_path.endswith(".npy"):
        ours = np.load(ours_path, mmap_mode="r")
    else:
        ours = np.memmap(ours_path, dtype=np.float32, mode="r").reshape(ref.shape)
    same, worst, worst_top, divergence = 0, 0.0, 0.0, 0.0
    for r, o in zip(ref, ours):
        assert np.isfinite(o).all()
        lr, lo = log_softmax(r), log_softmax(o)
        same += int(r.argmax() == o.argmax())
        difference = np.abs(lr - lo)
        worst = max(worst, difference.max())
        worst_top = max(worst_top, difference[lr > -10].max())
        divergence += (np.exp(lr) * (lr - lo)).sum()
    share = same / len(ref)
    print(f"{len(ref)} positions: argmax equal at {100 * share:.2f} %, largest logprob difference {worst:.5f} over the whole "
          f"vocabulary of {ref.shape[1]}, {worst_top:.5f} where the reference is above -10; mean KL {divergence / len(ref):.2e}")
    if len(ref) < LIMITS["num_positions"]:
        print(f"too few positions: {len(ref)} of {LIMITS['num_positions']}")
        return False
    return share >= LIMITS["argmax_share"] and worst < LIMITS["logprob_difference"]


if __name__ == "__main__":
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["checkpoint"] and len(arguments) == 2:
        checkpoint(*arguments)
    elif command == ["ids"] and len(arguments) == 1:
        ids(*arguments)
    elif command == ["reference"] and len(arguments) in (3, 4):
        reference(*arguments)
    elif command == ["compare"] and len(arguments) == 2:
        sys.exit(0 if compare(*arguments) else 1)
    else:
        sys.exit(__doc__)
