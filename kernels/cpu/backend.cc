// The CPU backend: cuts each op into parts, spreads them over the threads, and calls the kernel
// family for each part.
#include "kernels/backend.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <fstream>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_backend.h"
#include "kernels/op_checks.h"

namespace weightless::kernels {
namespace {

// Rows worth a thread of their own, by what a row costs.
constexpr int64_t kNormGrain = 16;
constexpr int64_t kRopeGrain = 4;
constexpr int64_t kEmbedGrain = 2;
constexpr int64_t kMinRowChunk = 48;

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

const PackedWeight& Packed(const LinearWeight& w) {
  const auto* packed = dynamic_cast<const PackedWeight*>(&w);
  CHECK(packed != nullptr);
  return *packed;
}

// Memory that grows to what has been asked for; contents are lost when it does.
class Scratch {
 public:
  // `total_bytes` counts that of all scratches.
  Scratch(HostMemory& memory, std::atomic<size_t>& total_bytes)
      : memory_(memory), total_bytes_(total_bytes) {}

  float* Floats(int64_t count) {
    const size_t size_bytes = static_cast<size_t>(count) * sizeof(float);
    if (buffer_ == nullptr || buffer_->size_bytes() < size_bytes) {
      if (buffer_ != nullptr) total_bytes_ -= buffer_->size_bytes();
      buffer_.reset();
      buffer_ = memory_.Allocate(size_bytes);
      CHECK(buffer_ != nullptr);
      total_bytes_ += size_bytes;
    }
    return static_cast<float*>(buffer_->data());
  }

 private:
  HostMemory& memory_;
  std::atomic<size_t>& total_bytes_;
  std::unique_ptr<Buffer> buffer_;
};

void EmbedRow(const PackedWeight& table, int32_t id, float scale, float* x) {
  const uint32_t* cell = table.row_cells(id);
  if (table.type() == DType::kF32) {
    for (int64_t i = 0; i < table.k(); ++i) {
      x[i] = std::bit_cast<float>(cell[i * kStepCells]) * scale;
    }
    return;
  }
  for (int64_t i = 0; i < table.k(); i += 2) {
    const uint32_t pair = cell[i / 2 * kStepCells];
    x[i] = std::bit_cast<float>(pair << 16) * scale;
    if (i + 1 < table.k()) x[i + 1] = std::bit_cast<float>(pair & 0xffff0000u) * scale;
  }
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(const CpuOps& ops, int num_threads)
      : ops_(ops), pool_(num_threads), samplers_(static_cast<size_t>(num_threads)) {
    thread_scratch_.reserve(static_cast<size_t>(num_threads));
    for (int i = 0; i < num_threads; ++i) thread_scratch_.emplace_back(memory_, scratch_bytes_);
  }

  std::string device_name() const override {
    return ProcessorName() + ", " + std::to_string(pool_.num_threads()) + " threads";
  }
  std::string numerics() const override { return ops_.name(); }
  DType activation_type() const override { return ops_.activation_type(); }
  size_t workspace_bytes() const override { return scratch_bytes_; }

  std::unique_ptr<LinearWeight> PackDense(std::span<const DenseRows> stacked) override {
    return PackedWeight::Pack(stacked, activation_type(), pool_, memory_);
  }
  size_t KvBlockBytes(int num_kv_heads, int head_dim) const override {
    return static_cast<size_t>(Layout(num_kv_heads, head_dim).block_cells()) * sizeof(uint32_t);
  }

  void Embed(const int32_t* ids, const LinearWeight& table, float scale, TensorView x) override {
    CheckEmbed(table, x);
    const PackedWeight& packed = Packed(table);
    pool_.ForRange(x.rows, kEmbedGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        EmbedRow(packed, ids[t], scale, x.f32() + t * x.cols);
      }
    });
  }

  void RmsNorm(TensorView x, TensorView weight, float eps, TensorView out) override {
    CheckNorm(x, weight, out, activation_type());
    pool_.ForRange(x.rows, kNormGrain, [&](int64_t begin, int64_t end, int) {
      ops_.RmsNorm(x, weight, eps, out, begin, end);
    });
  }

  void RmsNormAdd(TensorView y, TensorView weight, float eps, TensorView x) override {
    CheckNorm(y, weight, x, DType::kF32);
    pool_.ForRange(y.rows, kNormGrain, [&](int64_t begin, int64_t end, int) {
      ops_.RmsNormAdd(y, weight, eps, x, begin, end);
    });
  }

  void Linear(TensorView x, const LinearWeight& w, TensorView out) override {
    CheckLinear(x, w, out, activation_type());
    const PackedWeight& packed = Packed(w);
    const PreparedRows rows = Prepare(x);
    ForGroups(NumLinearGroups(packed), rows.rows,
              [&](int64_t group, int64_t first_row, int64_t count) {
                ops_.Linear(rows, packed, out.f32(), group, first_row, count);
              });
  }

  void LinearGeglu(TensorView x, const LinearWeight& w, TensorView out) override {
    CheckLinearGeglu(x, w, out, activation_type());
    const PackedWeight& packed = Packed(w);
    CHECK(packed.halves_match());
    const PreparedRows rows = Prepare(x);
    ForGroups(NumGegluGroups(packed), rows.rows,
              [&](int64_t group, int64_t first_row, int64_t count) {
                ops_.LinearGeglu(rows, packed, out, group, first_row, count);
              });
  }

  void NormRopeStoreKv(TensorView qkv, const NormRopeInputs& in, const AttentionShape& shape,
                       const PoolBatch& batch, const KvLayer& layer, TensorView q_out) override {
    CheckNormRope(qkv, in, shape, batch, layer, q_out, activation_type());
    const KvLayout layout = Layout(shape.num_kv_heads, shape.head_dim);
    pool_.ForRange(batch.num_tokens, kRopeGrain, [&](int64_t begin, int64_t end, int) {
      ops_.NormRopeStoreKv(qkv, in, shape, batch, layout, layer, q_out, begin, end);
    });
  }

  void Attention(TensorView q, const AttentionShape& shape, const PoolBatch& batch,
                 const KvLayer& layer, TensorView out) override {
    CheckAttention(q, shape, batch, layer, out, activation_type());
    PlanAttention(shape, batch, pool_.num_threads(), plan_);
    if (plan_.units.empty()) return;
    AttentionCall call{.q = q,
                       .out = out,
                       .shape = shape,
                       .batch = batch,
                       .layout = Layout(shape.num_kv_heads, shape.head_dim),
                       .layer = layer};
    if (plan_.num_partials > 0) {
      call.partials = partials_.Floats(plan_.num_partials * PartialFloats(shape));
    }
    const auto num_units = static_cast<int64_t>(plan_.units.size());
    pool_.ForRange(num_units, 1, [&](int64_t begin, int64_t end, int thread) {
      float* scratch = ScratchOf(thread).Floats(AttentionScratchFloats(shape));
      for (int64_t i = begin; i < end; ++i) {
        ops_.Attention(call, plan_.units[static_cast<size_t>(i)], scratch);
      }
    });
    float* scratch = ScratchOf(0).Floats(AttentionScratchFloats(shape));
    for (const AttentionPlan::Merge& merge : plan_.merges) {
      ops_.MergeAttention(call, merge, scratch);
    }
  }

  void Sample(TensorView logits, const int32_t* slots, SlotStates& states,
              SampledToken* out) override {
    HostSlotStates& host = OnHost(states);
    ForLogits(logits, [&](int64_t i, std::span<float> row, Sampler& sampler) {
      if (slots[i] >= 0) out[i] = host.Draw(slots[i], row, sampler);
    });
  }

  void Score(TensorView logits, const int32_t* slots, const int32_t* tokens,
             const SlotStates& states, SampledToken* out) override {
    const HostSlotStates& host = OnHost(states);
    ForLogits(logits, [&](int64_t i, std::span<float> row, Sampler& sampler) {
      out[i] = host.Score(slots[i], tokens[i], row, sampler);
    });
  }

 private:
  KvLayout Layout(int num_kv_heads, int head_dim) const {
    return {.head_dim = head_dim, .num_kv_heads = num_kv_heads, .type = activation_type()};
  }
  Scratch& ScratchOf(int thread) { return thread_scratch_[static_cast<size_t>(thread)]; }

  PreparedRows Prepare(const TensorView& x) {
    if (ops_.IsPrepared(x.cols)) return {x.data, x.cols, x.rows};
    const int64_t stride = PaddedK(x.cols, activation_type());
    void* to = prepared_.Floats(x.rows * stride);
    pool_.ForRange(x.rows, kNormGrain,
                   [&](int64_t begin, int64_t end, int) { ops_.Prepare(x, to, begin, end); });
    return {to, stride, x.rows};
  }

  // body(i, row i, the thread's sampler)
  template <typename Body>
  void ForLogits(TensorView logits, Body&& body) {
    pool_.ForRange(logits.rows, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        body(i, LogitsRow(logits, i), samplers_[static_cast<size_t>(thread)]);
      }
    });
  }

  // body(group, first_row, rows) over all groups and rows; rows are only cut when there are too few
  // groups for the threads.
  template <typename Body>
  void ForGroups(int64_t num_groups, int64_t num_rows, Body&& body) {
    const int64_t wanted = (4 * pool_.num_threads() + num_groups - 1) / num_groups;
    const int64_t chunks = std::clamp<int64_t>(num_rows / kMinRowChunk, 1, wanted);
    pool_.ForRange(num_groups * chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first_row = num_rows * (i % chunks) / chunks;
        const int64_t last_row = num_rows * (i % chunks + 1) / chunks;
        if (last_row > first_row) body(i / chunks, first_row, last_row - first_row);
      }
    });
  }

  const CpuOps& ops_;
  ThreadPool pool_;
  std::atomic<size_t> scratch_bytes_ = 0;
  std::vector<Scratch> thread_scratch_;
  std::vector<Sampler> samplers_;
  Scratch prepared_{memory_, scratch_bytes_};
  Scratch partials_{memory_, scratch_bytes_};
  AttentionPlan plan_;
};

// Null when this processor or build does not have the family.
const CpuOps* OpsOf(KernelFamily family, DType type) {
  const CpuFeatures& cpu = ThisCpu();
  const bool is_bf16 = type == DType::kBF16;
  switch (family) {
    case KernelFamily::kAmx:
      return is_bf16 && cpu.amx_bf16 ? AmxOps() : nullptr;
    case KernelFamily::kAvx512Bf16:
      if (is_bf16) return cpu.avx512_bf16 ? Avx512Bf16Ops() : nullptr;
      return cpu.avx512 ? Avx512F32Ops() : nullptr;
    case KernelFamily::kAvx2:
      return cpu.avx2 ? Avx2Ops(type) : nullptr;
    case KernelFamily::kAuto:
    case KernelFamily::kReference:
      break;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  if (options.family == KernelFamily::kReference) {
    return MakeReferenceBackend(options.activation_type);
  }
  const CpuOps* ops = nullptr;
  if (options.family == KernelFamily::kAuto) {
    for (const KernelFamily family :
         {KernelFamily::kAmx, KernelFamily::kAvx512Bf16, KernelFamily::kAvx2}) {
      if (ops == nullptr) ops = OpsOf(family, options.activation_type);
    }
    if (ops == nullptr) return MakeReferenceBackend(options.activation_type);
  } else {
    ops = OpsOf(options.family, options.activation_type);
    if (ops == nullptr) return nullptr;
  }
  const int num_threads = options.num_threads > 0 ? options.num_threads : DefaultNumThreads();
  return std::make_unique<CpuBackend>(*ops, num_threads);
}

}  // namespace weightless::kernels
