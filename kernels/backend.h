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
// call order on one queue of the backend and may return before they are done; arrays they read or
// write are in backend memory. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/sample.h"
#include "kernels/tensor.h"

namespace weightless::kernels {

// A weight matrix W [n, k] in whatever form its backend multiplies by. A form is a class of the
// backend with a Pack function that makes it; the ops tell forms apart.
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
  // In the order of the queue, without waiting for it; `host` has been read on return.
  virtual void Upload(const void* host, size_t size_bytes, void* device) = 0;
  // Waits for the queue: `host` has been written on return.
  virtual void Download(const void* device, size_t size_bytes, void* host) = 0;
  // Part of a step, in the order of the queue, without waiting for it: `host` has been written when
  // CollectStep of the step returns.
  virtual void DownloadLater(const void* device, size_t size_bytes, void* host) = 0;
  // One matrix from matrices of one k stacked by rows (q, k, v; gate, up): [sum of n, k], rounded
  // to the activation type. Null when the memory does not suffice.
  virtual std::unique_ptr<LinearWeight> PackDense(std::span<const DenseRows> stacked) = 0;
  // Bytes of one block of one layer, K and V, all kv heads.
  virtual size_t KvBlockBytes(int num_kv_heads, int head_dim) const = 0;
  // For sequences of at most max_context tokens below vocab_size. Null when the memory does not
  // suffice.
  virtual std::unique_ptr<SlotStates> MakeSlotStates(int num_slots, int max_context,
                                                     int vocab_size) = 0;

  // --- steps: what is enqueued between BeginStep and EndStep ---

  // How many steps the caller should keep enqueued: 1 when ops are done as they return.
  virtual int steps_in_flight() const = 0;
  virtual void BeginStep() = 0;
  virtual void EndStep() = 0;
  // Whether CollectStep would return at once.
  virtual bool IsStepDone() = 0;
  // Waits for the oldest step that has not been collected; the nanoseconds it took on the device.
  virtual uint64_t CollectStep() = 0;
  // Sequences that a step of num_seqs decodes and nothing else is padded to, with inert ones: slot
  // -1, context length 0, no rows in cu_seqlens_q, rows of the step that are not stored. What ops
  // leave in the rows of inert sequences is not read.
  virtual int PadDecodes(int num_seqs) const = 0;
  // Runs the ops of such a step. For equal num_seqs, padded, they are the same calls with the same
  // arguments, and they read no host arrays of PoolBatch: a device may capture what they enqueue,
  // once, and replay it without calling `ops`.
  virtual void RunDecodes(int num_seqs, const std::function<void()>& ops) = 0;

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

  // ids[i] = the token drawn last in slots[i]; any token for slot -1.  ids, slots [num_slots].
  virtual void FeedTokens(const SlotStates& states, const int32_t* slots, int num_slots,
                          int32_t* ids) = 0;

  // Draws a token from each row as kernels/sample.h says and appends it to the row's slot; rows of
  // slot -1 are left out.  logits f32 [num_rows, vocab], overwritten; slots [num_rows], distinct
  // but for -1; out [num_rows].
  virtual void Sample(TensorView logits, const int32_t* slots, SlotStates& states,
                      SampledToken* out) = 0;

  // Reports on tokens[i] in row i with the slot's num_prompt_logprobs. Shapes as in Sample; slots
  // may repeat.
  virtual void Score(TensorView logits, const int32_t* slots, const int32_t* tokens,
                     const SlotStates& states, SampledToken* out) = 0;
};

// One fixed order of float operations each: the same family gives the same bits on every processor
// that has it. In float32 mode kAvx512Bf16 needs AVX-512 F, BW, DQ and VL alone, and kAmx
// does not exist.
enum class KernelFamily { kAuto, kReference, kAvx2, kAvx512Bf16, kAmx };

struct CpuBackendOptions {
  DType activation_type = DType::kBF16;
  KernelFamily family = KernelFamily::kAuto;  // auto: the best this processor has
  int num_threads = 0;                        // 0: all cores this process may run on
};

// Plain loops in float32 with float64 sums where it matters; the test oracle. One thread.
std::unique_ptr<Backend> MakeReferenceBackend(DType activation_type);
// Null when the processor lacks what a family that was asked for needs. Throws std::system_error
// when the system gives no more threads.
std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace weightless::kernels
