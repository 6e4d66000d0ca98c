"""Writes the binary seeds of the checkpoint fuzzers: models of one layer, as other writers save them.

Needs numpy, gguf and safetensors. Usage: python tests/fuzz/make_corpus.py
"""

import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

CORPUS = pathlib.Path(__file__).parent / "corpus"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 32, 2, 1, 16, 32, 8

LAYER = {  # suffix in both formats and shape
    ("attn_norm", "input_layernorm"): (HIDDEN,),
    ("post_attention_norm", "post_attention_layernorm"): (HIDDEN,),
    ("ffn_norm", "pre_feedforward_layernorm"): (HIDDEN,),
    ("post_ffw_norm", "post_feedforward_layernorm"): (HIDDEN,),
    ("attn_q", "self_attn.q_proj"): (HEADS * HEAD_DIM, HIDDEN),
    ("attn_k", "self_attn.k_proj"): (KV_HEADS * HEAD_DIM, HIDDEN),
    ("attn_v", "self_attn.v_proj"): (KV_HEADS * HEAD_DIM, HIDDEN),
    ("attn_output", "self_attn.o_proj"): (HIDDEN, HEADS * HEAD_DIM),
    ("attn_q_norm", "self_attn.q_norm"): (HEAD_DIM,),
    ("attn_k_norm", "self_attn.k_norm"): (HEAD_DIM,),
    ("ffn_gate", "mlp.gate_proj"): (INNER, HIDDEN),
    ("ffn_up", "mlp.up_proj"): (INNER, HIDDEN),
    ("ffn_down", "mlp.down_proj"): (HIDDEN, INNER),
}


def values(shape, random):
    return random.standard_normal(shape).astype(np.float32)


def write_gguf(path, matrix_type):
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(8)
    writer.add_rope_freq_base(1e6)
    writer.add_array("gemma3.attention.sliding_window_pattern", [True])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<pad>", "<eos>", "<bos>", "<unk>", "a", "b", "c", "<end_of_turn>"])
    writer.add_token_scores([-1000.0, -1000.0, -1000.0, -1000.0, 0.0, -1.0, -2.0, -1000.0])
    writer.add_token_types([3, 3, 3, 2, 1, 1, 1, 3])
    writer.add_eos_token_id(1)

    def add(name, shape):
        data = values(shape, random)
        if len(shape) == 1:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quants.quantize(data, matrix_type), raw_dtype=matrix_type)

    add("token_embd.weight", (VOCAB, HIDDEN))
    add("output_norm.weight", (HIDDEN,))
    for (name, _), shape in LAYER.items():
        add(f"blk.0.{name}.weight", shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors(path, prefix, dtype):
    random = np.random.default_rng(1)
    tensors = {
        f"{prefix}embed_tokens.weight": values((VOCAB, HIDDEN), random).astype(dtype),
        f"{prefix}norm.weight": values((HIDDEN,), random).astype(dtype),
        "vision_tower.post_layernorm.bias": np.zeros(3, np.int32),
    }
    for (_, name), shape in LAYER.items():
        tensors[f"{prefix}layers.0.{name}.weight"] = values(shape, random).astype(dtype)
    save_file(tensors, path, metadata={"format": "pt"})


def main():
    for folder in ("gguf", "safetensors"):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
    types = gguf.GGMLQuantizationType
    write_gguf(CORPUS / "gguf" / "q8_0.gguf", types.Q8_0)
    write_gguf(CORPUS / "gguf" / "q4_0.gguf", types.Q4_0)
    write_safetensors(CORPUS / "safetensors" / "f16.safetensors", "model.", np.float16)
    write_safetensors(CORPUS / "safetensors" / "f32.safetensors", "language_model.model.", np.float32)
    index = {"metadata": {"total_size": 1}, "weight_map": {"model.norm.weight": "model-1.safetensors"}}
    (CORPUS / "safetensors" / "index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    main()
