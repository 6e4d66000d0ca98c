// Speed of the CPU kernels at the shapes of Gemma 3 270M, each beside what this machine can do: the
// rate of reading memory and the rate of multiplying, measured in the same run.
//
//   build/release/bin/kernel_bench [threads] [avx2|avx512bf16|amx]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_memory.h"
#include "kernels/rope_table.h"

namespace weightless::kernels {
namespace {

constexpr int64_t kHidden = 640;
constexpr int64_t kIntermediate = 2048;
constexpr int64_t kVocab = 262144;

// Seconds of the fastest of several runs of `body`, after one that is not counted.
template <typename Body>
double Fastest(int repeats, Body&& body) {
  double best = 1e9;
  for (int i = 0; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::min(best, elapsed.count());
  }
  return best;
}

DenseRows Noise(int64_t n, int64_t k) {
  DenseRows rows{.n = n, .k = k, .read = {}};
  rows.read = [k](int64_t first, int64_t count, float* out) {
    std::minstd_rand random(static_cast<unsigned>(first + 1));
    for (int64_t i = 0; i < count * k; ++i) {
      out[i] = static_cast<float>(random() & 0xffff) * 0x1p-16f - 0.5f;
    }
  };
  return rows;
}

std::vector<uint16_t> Activations(int64_t count) {
  std::minstd_rand random(5);
  std::vector<uint16_t> x(static_cast<size_t>(count));
  for (uint16_t& value : x) value = ToBF16(static_cast<float>(random() & 0xff) / 256 - 0.5f).bits;
  return x;
}

// Bytes per second of all threads adding up 512 MiB.
double MeasureReadRate(int num_threads) {
  ThreadPool pool(num_threads);
  constexpr int64_t kWords = int64_t{64} << 20;
  HostMemory memory;
  const auto buffer = memory.Allocate(kWords * sizeof(uint64_t));
  auto* data = static_cast<uint64_t*>(buffer->data());
  std::fill_n(data, kWords, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(num_threads) * 8);
  const double seconds = Fastest(5, [&] {
    pool.ForRange(kWords, 1, [&](int64_t begin, int64_t end, int t) {
      typedef uint64_t Line __attribute__((vector_size(64)));
      const auto* lines = reinterpret_cast<const Line*>(data + begin);
      const int64_t part = (end - begin) / 8 / 4;  // four streams: faster than one
      Line sum[4] = {};
      for (int64_t i = 0; i < part; ++i) {
        for (int j = 0; j < 4; ++j) {
          __builtin_prefetch(lines + j * part + i + 32);
          sum[j] += lines[j * part + i];
        }
      }
      const Line total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      sums[static_cast<size_t>(t) * 8] += total[0] + total[7];
    });
  });
  return static_cast<double>(kWords * 8) / seconds;
}

class Bench {
 public:
  Bench(KernelFamily family, int num_threads)
      : backend_(MakeCpuBackend({.family = family, .num_threads = num_threads})),
        read_rate_(MeasureReadRate(num_threads)) {
    if (backend_ == nullptr) {
      std::fprintf(stderr, "this processor does not have that family\n");
      std::exit(2);
    }
    std::printf("%s on %s\nread rate %.1f GB/s\n\n", backend_->numerics().c_str(),
                backend_->device_name().c_str(), read_rate_ * 1e-9);
  }

  // `copies` matrices in turn, so that small ones come from memory as they do in a model.
  void Linear(const char* name, int64_t n, int64_t k, int copies, bool geglu) {
    std::vector<std::unique_ptr<LinearWeight>> weights;
    for (int i = 0; i < copies; ++i) {
      const DenseRows parts[] = {Noise(n / 2, k), Noise(n / 2, k)};
      weights.push_back(backend_->PackDense(parts));
    }
    for (const int64_t rows : {1, 8, 32, 512}) {
      if (n == kVocab && rows == 512) continue;
      std::vector<uint16_t> x = Activations(rows * k);
      std::vector<float> out(static_cast<size_t>(rows * n));
      const TensorView x_view{x.data(), DType::kBF16, rows, k};
      const TensorView out_view{out.data(), geglu ? DType::kBF16 : DType::kF32, rows,
                                geglu ? n / 2 : n};
      const double seconds = Fastest(rows < 512 ? 8 : 3,
                                     [&] {
                                       for (const auto& w : weights) {
                                         geglu ? backend_->LinearGeglu(x_view, *w, out_view)
                                               : backend_->Linear(x_view, *w, out_view);
                                       }
                                     }) /
                             copies;
      const double bytes = static_cast<double>(n * k * 2);
      std::printf("%-22s rows %4d %9.1f us %7.1f GB/s (%3.0f %% of read) %8.1f GFLOP/s\n", name,
                  static_cast<int>(rows), seconds * 1e6, bytes / seconds * 1e-9,
                  100 * bytes / seconds / read_rate_,
                  bytes * static_cast<double>(rows) / seconds * 1e-9);
    }
  }

  // One layer of 4 query heads on 1 kv head of 256.
  void Attention(const char* name, int num_seqs, int rows, int context_len, int window) {
    const AttentionShape shape{
        .num_heads = 4, .num_kv_heads = 1, .head_dim = 256, .window = window, .scale = 0.0625f};
    const int blocks = (context_len + kBlockSize - 1) / kBlockSize;
    const int copies = 200 * kBlockSize / (num_seqs * blocks * kBlockSize) + 1;
    std::vector<std::unique_ptr<Buffer>> caches;
    for (int i = 0; i < copies; ++i) {
      caches.push_back(backend_->Allocate(static_cast<size_t>(num_seqs * blocks) *
                                          backend_->KvBlockBytes(1, 256)));
      std::fill_n(static_cast<uint32_t*>(caches.back()->data()),
                  caches.back()->size_bytes() / sizeof(uint32_t), 0x3e803e80u);
    }
    std::vector<int32_t> cu_seqlens = {0};
    std::vector<int32_t> tables, slots;
    for (int s = 0; s < num_seqs; ++s) {
      slots.push_back(s);
      cu_seqlens.push_back((s + 1) * rows);
      for (int b = 0; b < blocks; ++b) tables.push_back(s * blocks + b);
    }
    const std::vector<int32_t> lens(static_cast<size_t>(num_seqs), context_len);
    const int tokens = num_seqs * rows;
    const PoolBatch batch{.num_tokens = tokens,
                          .num_seqs = num_seqs,
                          .cu_seqlens_q = cu_seqlens.data(),
                          .context_lens = lens.data(),
                          .slots = slots.data(),
                          .block_tables = tables.data(),
                          .max_blocks_per_seq = blocks,
                          .host_cu_seqlens_q = cu_seqlens.data(),
                          .host_context_lens = lens.data()};
    std::vector<uint16_t> q = Activations(tokens * 1024);
    std::vector<uint16_t> out(q.size());
    const double seconds =
        Fastest(5,
                [&] {
                  for (const auto& cache : caches) {
                    const KvLayer layer{cache->data(), num_seqs * blocks, 1, 256};
                    backend_->Attention({q.data(), DType::kBF16, tokens, 1024}, shape, batch, layer,
                                        {out.data(), DType::kBF16, tokens, 1024});
                  }
                }) /
        copies;
    const int seen = window > 0 ? std::min(window, context_len) : context_len;
    const double bytes = 1024.0 * (seen + rows - 1) * num_seqs;
    std::printf("%-22s %9.1f us %7.1f GB/s (%3.0f %% of read)\n", name, seconds * 1e6,
                bytes / seconds * 1e-9, 100 * bytes / seconds / read_rate_);
  }

  // The ops between the products, for one layer.
  void Rows(int rows) {
    const AttentionShape shape{.num_heads = 4, .num_kv_heads = 1, .head_dim = 256};
    std::vector<float> x(static_cast<size_t>(rows * 1536), 0.5f);
    std::vector<float> weight(kHidden, 1.0f);
    std::vector<uint16_t> out(static_cast<size_t>(rows * 1024));
    const TensorView hidden{x.data(), DType::kF32, rows, kHidden};
    const TensorView norm{weight.data(), DType::kF32, 1, kHidden};
    const double norm_us =
        1e6 * Fastest(20, [&] {
          backend_->RmsNorm(hidden, norm, 1e-6f, {out.data(), DType::kBF16, rows, kHidden});
        });
    std::vector<float> y(static_cast<size_t>(rows * kHidden), 0.5f);
    const double add_us =
        1e6 * Fastest(20, [&] {
          backend_->RmsNormAdd({y.data(), DType::kF32, rows, kHidden}, norm, 1e-6f, hidden);
        });
    HostRopeTable rope = MakeRopeTable({.head_dim = 256}, rows);
    const TensorView head_norm{weight.data(), DType::kF32, 1, 256};
    const NormRopeInputs in{.q_norm = head_norm,
                            .k_norm = head_norm,
                            .rope = {.cos = {rope.cos.data(), DType::kF32, rows, 128},
                                     .sin = {rope.sin.data(), DType::kF32, rows, 128}}};
    std::vector<int32_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), 0);
    const PoolBatch batch{
        .num_tokens = rows, .positions = positions.data(), .slot_mapping = positions.data()};
    const int64_t blocks = rows / kBlockSize + 1;
    const auto cache =
        backend_->Allocate(static_cast<size_t>(blocks) * backend_->KvBlockBytes(1, 256));
    const double rope_us =
        1e6 * Fastest(20, [&] {
          backend_->NormRopeStoreKv({x.data(), DType::kF32, rows, 1536}, in, shape, batch,
                                    {cache->data(), blocks, 1, 256},
                                    {out.data(), DType::kBF16, rows, 1024});
        });
    std::printf("rows %4d: norm %.1f us, norm and add %.1f us, norm, RoPE, store %.1f us\n", rows,
                norm_us, add_us, rope_us);
  }

  void Sample(const char* name, int num_rows, const SamplingParams& params, int num_logprobs) {
    std::vector<float> logits(static_cast<size_t>(num_rows * kVocab));
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    for (float& l : logits) l = normal(random);
    const std::vector<int32_t> tokens(1000, 17);
    SamplingParams slot_params = params;
    slot_params.num_logprobs = num_logprobs;
    const auto states = backend_->MakeSlotStates(num_rows, 2000, kVocab);
    std::vector<int32_t> slots;
    for (int slot = 0; slot < num_rows; ++slot) {
      states->Admit(slot, slot_params, tokens, 500);
      slots.push_back(slot);
    }
    std::vector<SampledToken> out(slots.size());
    const double seconds = Fastest(10, [&] {
      backend_->Sample({logits.data(), DType::kF32, num_rows, kVocab}, slots.data(), *states,
                       out.data());
    });
    std::printf("%-22s rows %4d %9.1f us, %.1f us each\n", name, num_rows, seconds * 1e6,
                seconds * 1e6 / num_rows);
  }

 private:
  std::unique_ptr<Backend> backend_;
  double read_rate_;
};

void RunAll(KernelFamily family, int num_threads) {
  Bench bench(family, num_threads);
  bench.Linear("qkv", 1536, kHidden, 40, false);
  bench.Linear("attention out", kHidden, 1024, 60, false);
  bench.Linear("gate, up, geglu", 2 * kIntermediate, kHidden, 20, true);
  bench.Linear("down", kHidden, kIntermediate, 40, false);
  bench.Linear("head", kVocab, kHidden, 1, false);
  std::printf("\n");
  bench.Attention("decode 1 x 512", 1, 1, 512, 0);
  bench.Attention("decode 1 x 8192", 1, 1, 8192, 0);
  bench.Attention("decode 8 x 1024 w512", 8, 1, 1024, 512);
  bench.Attention("prefill 512", 1, 512, 512, 0);
  bench.Attention("prefill 512 of 4096", 1, 512, 4096, 0);
  std::printf("\n");
  for (const int rows : {1, 8, 32, 512}) bench.Rows(rows);
  std::printf("\n");
  bench.Sample("greedy", 1, {}, -1);
  bench.Sample("greedy", 8, {}, -1);
  bench.Sample("greedy, logprobs 5", 1, {}, 5);
  bench.Sample("temperature", 1, {.temperature = 0.7f}, -1);
  bench.Sample("top_k 64 top_p 0.95", 1, {.temperature = 1, .top_k = 64, .top_p = 0.95f}, -1);
  bench.Sample("top_p 0.95", 1, {.temperature = 1, .top_p = 0.95f}, -1);
  bench.Sample("min_p, repetition", 1,
               {.temperature = 1, .min_p = 0.05f, .repetition_penalty = 1.1f}, -1);
}

}  // namespace
}  // namespace weightless::kernels

int main(int argc, char** argv) {
  using weightless::kernels::KernelFamily;
  const int num_threads =
      argc > 1 ? std::max(1, std::atoi(argv[1])) : weightless::kernels::DefaultNumThreads();
  const std::string name = argc > 2 ? argv[2] : "auto";
  const KernelFamily family = name == "avx2"         ? KernelFamily::kAvx2
                              : name == "avx512bf16" ? KernelFamily::kAvx512Bf16
                              : name == "amx"        ? KernelFamily::kAmx
                                                     : KernelFamily::kAuto;
  weightless::kernels::RunAll(family, num_threads);
  return 0;
}
