// The contract of every op of the forward pass, and of the memory it runs in. One implementation
// per device and kernel family: reference (plain loops, the oracle of all tests), CPU (SIMD, all
// cores). The forward pass is written once, against this.
//
// Types: the residual stream x and all products are float32; what a Linear reads is
// `activation_type()`: bfloat16, or float32 in float32 mode. So a value is rounded exactly once on
// its way into a product.
//
// Exactness: every output row depends, bit for bit, only on that row's own inputs: not on how many
// rows there are, which other rows, where the row stands, or how a prompt is cut into chunks. So an
// implementation has one fixed summation order per op: over K in Linear, over absolute positions in
// Attention.
//
// Ops CHECK-fail on shapes or types against their comment. No output overlaps an input. They run in
// call order on one queue of the backend; Synchronize waits for it. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/sample.h"
#include "kernels/tensor.h"

namespace weightless::kernels {

inline constexpr int kBlockSize = 64;  // token positions per KV block

// A weight matrix W [n, k] in whatever form its backend multiplies by: dense, and later shared base
// plus low rank.
class LinearWeight {
 public:
  virtual ~LinearWeight() = default;
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  size_t size_bytes() const { return size_bytes_; }

 protected:
  int64_t n_ = 0;
  int64_t k_ = 0;
  size_t size_bytes_ = 0;
};

// Dense rows as a checkpoint gives them. `read(first, count, out)` writes rows [first, first +
// count) as float32; called from several threads.
struct DenseRows {
  int64_t n = 0;
  int64_t k = 0;
  std::function<void(int64_t first, int64_t count, float* out)> read;
};

// K and V of one layer: blocks of kBlockSize positions. Inside a block the layout is the backend's
// own.
struct KvLayer {
  void* data = nullptr;  // num_blocks * KvBlockBytes(num_kv_heads, head_dim)
  int64_t num_blocks = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
};

// cos and sin of position * w_i, [max_context, head_dim / 2] float32 each (gemma.md 2.5), in
// backend memory.
struct RopeTable {
  TensorView cos;
  TensorView sin;
};

// The tokens of one step as the layers of one pool see them. Sequence s owns the rows
// [cu_seqlens_q[s], cu_seqlens_q[s+1]), which are consecutive positions; the last of them is
// context_lens[s] - 1. All arrays in backend memory.
struct PoolBatch {
  int num_tokens = 0;
  int num_seqs = 0;
  const int32_t* positions = nullptr;     // [num_tokens]
  const int32_t* cu_seqlens_q = nullptr;  // [num_seqs + 1]
  const int32_t* context_lens = nullptr;  // [num_seqs]
  // [num_tokens] block_id * kBlockSize + offset where K and V are written; -1: they are not
  const int32_t* slot_mapping = nullptr;
  // [num_seqs, max_blocks_per_seq] by position / kBlockSize; entries behind the window are not read
  const int32_t* block_tables = nullptr;
  int max_blocks_per_seq = 0;
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

// Memory of a backend, freed with the object; 64-byte aligned.
class Buffer {
 public:
  virtual ~Buffer() = default;
  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 protected:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu" | "cuda"; the device's own name; kernel family and dtype, "cpu-avx512bf16/bfloat16".
  virtual std::string device_kind() const = 0;
  virtual std::string device_name() const = 0;
  virtual std::string numerics() const = 0;
  virtual DType activation_type() const = 0;
  virtual size_t memory_total_bytes() const = 0;
  // What has been taken through this backend, as its allocator counts it, and the part of it that
  // ops keep for themselves. Any thread may ask.
  virtual size_t memory_allocated_bytes() const = 0;
  virtual size_t workspace_bytes() const = 0;

  // --- memory at any time, weights at load time ---

  // Zeroed. kResourceExhausted in the shape of a null pointer: the caller says what did not fit.
  virtual std::unique_ptr<Buffer> Allocate(size_t size_bytes) = 0;
  // Both in the order of the queue; `host` has been read, or written, when they return.
  virtual void Upload(const void* host, size_t size_bytes, void* device) = 0;
  virtual void Download(const void* device, size_t size_bytes, void* host) = 0;
  // One matrix from matrices of one k stacked by rows (q, k, v; gate, up): [sum of n, k], rounded
  // to the activation type. Null when the memory does not suffice.
  virtual std::unique_ptr<LinearWeight> PackDense(std::span<const DenseRows> stacked) = 0;
  // Bytes of one block of one layer, K and V, all kv heads.
  virtual size_t KvBlockBytes(int num_kv_heads, int head_dim) const = 0;

  // --- ops ---

  // x[t, :] = table[ids[t], :] * scale.  ids [x.rows], each in [0, n);  x f32 [T, k].
  virtual void Embed(const int32_t* ids, const LinearWeight& table, float scale, TensorView x) = 0;

  // out[t, :] = x[t, :] / sqrt(mean(x[t, :]^2) + eps) * weight[:].  x f32 [T, h], weight f32 [1,
  // h], out activation or f32 [T, h].
  virtual void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out) = 0;

  // x += RmsNorm(y).  y, x f32 [T, h].
  virtual void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x) = 0;

  // out = x W^T.  x activation [T, k], out f32 [T, n]. float32 accumulation.
  virtual void Linear(TensorView x, const LinearWeight& w, TensorView out) = 0;

  // out = gelu_tanh(x G^T) * (x U^T), W = [G; U] [2f, k] packed from those two.  x activation [T,
  // k], out activation [T, f]; rounded once, at the end.
  virtual void LinearGeglu(TensorView x, const LinearWeight& w, TensorView out) = 0;

  // Splits qkv f32 [T, (H + 2K) d] = [q heads | k heads | v heads]; per head RMS norm of q and k,
  // then RoPE (half rotation, pairs (i, i + d/2)) at positions[t]; q to q_out activation [T, H d];
  // k and v, rounded to the activation type, to the layer at slot_mapping[t].
  virtual void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in,
                               const AttentionShape& shape, const PoolBatch& batch,
                               const KvLayer& layer, TensorView q_out) = 0;

  // Causal softmax attention of every query row over its sequence's blocks; the step's own K and V
  // have been stored. q, out activation [T, H d]. float32 scores and accumulation; always subtracts
  // the running maximum.
  virtual void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
                         const KvLayer& layer, TensorView out) = 0;

  // out[i, :] = x[rows[i], :].  f32; rows [out.rows], each in [0, x.rows).
  virtual void GatherRows(TensorView x, const int32_t* rows, TensorView out) = 0;

  // See kernels/sample.h. logits f32 [num_rows, vocab], overwritten; out is there on return.
  virtual void Sample(TensorView logits, std::span<const SampleRow> rows,
                      std::span<SampledToken> out) = 0;

  virtual void Synchronize() = 0;
};

// One fixed order of float operations each: the same family gives the same bits on every processor
// that has it. In float32 mode kAvx512Bf16 needs AVX-512F only, and kAmx does not exist.
enum class KernelFamily { kAuto, kReference, kAvx2, kAvx512Bf16, kAmx };

struct CpuBackendOptions {
  DType activation_type = DType::kBF16;
  KernelFamily family = KernelFamily::kAuto;  // auto: the best this processor has
  int num_threads = 0;                        // 0: all cores this process may run on
};

// Plain loops in float32 with float64 sums where it matters; the test oracle. One thread.
std::unique_ptr<Backend> MakeReferenceBackend(DType activation_type);
// Null when the processor lacks what a family that was asked for needs.
std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace weightless::kernels
