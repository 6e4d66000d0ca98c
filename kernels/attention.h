// What the ops around attention work on: K and V in blocks, rotary tables, the tokens of a step.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace weightless::kernels {

inline constexpr int kBlockSize = 64;  // token positions per KV block

// K and V of one layer: blocks of kBlockSize positions. Inside a block the layout is the backend's
// own.
struct KvLayer {
  void* data = nullptr;  // num_blocks * KvBlockBytes(num_kv_heads, head_dim)
  int64_t num_blocks = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
};

// cos and sin of position * w_i, [max_context, head_dim / 2] float32 each, in backend memory.
struct RopeTable {
  TensorView cos;
  TensorView sin;
};

// The tokens of one step as the layers of one pool see them. Sequence s owns the rows
// [cu_seqlens_q[s], cu_seqlens_q[s+1]), which are consecutive positions; the last of them is
// context_lens[s] - 1. Arrays in backend memory unless said otherwise.
struct PoolBatch {
  int num_tokens = 0;
  int num_seqs = 0;
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* cu_seqlens_q = nullptr;  // [num_seqs + 1]
  const int32_t* context_lens = nullptr;  // [num_seqs]
  // [num_seqs] rows of block_tables, distinct; -1 is an inert sequence (Backend::PadDecodes)
  const int32_t* slots = nullptr;
  // [num_tokens] block_id * kBlockSize + offset where K and V are written; -1: they are not
  const int32_t* slot_mapping = nullptr;
  // [num slots, max_blocks_per_seq] by position / kBlockSize; entries behind the window or beyond
  // context_lens are not read
  const int32_t* block_tables = nullptr;
  int max_blocks_per_seq = 0;
  // The same values in host memory, for cutting the step into parts; valid during the call.
  const int32_t* host_cu_seqlens_q = nullptr;
  const int32_t* host_context_lens = nullptr;
};

struct AttentionShape {
  int num_heads = 0;
  int num_kv_heads = 0;  // query head h reads kv head h / (num_heads / num_kv_heads)
  int head_dim = 0;      // multiple of 16
  int window = 0;        // key j is visible from i when j <= i and, with window > 0, i - j < window
  float scale = 1;       // multiplies q k^T
};

struct NormRopeInputs {
  TensorView q_norm;  // f32 [1, head_dim], the factor itself: any "1 +" is already added
  TensorView k_norm;  // f32 [1, head_dim]
  RopeTable rope;
  float eps = 1e-6f;
};

}  // namespace weightless::kernels
