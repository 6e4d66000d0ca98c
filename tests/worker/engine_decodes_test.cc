// Steps of decodes alone: padded to a bucket, and the same calls with the same arguments each time,
// as a device needs that captures them.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/worker/forwarding_backend.h"
#include "tests/worker/test_engine.h"

namespace weightless::worker {
namespace {

using kernels::PoolBatch;
using kernels::TensorView;

// Pads decodes to multiples of `bucket` and writes down what the ops of such steps are called with.
class BucketBackend : public kernels::ForwardingBackend {
 public:
  using Calls = std::vector<const void*>;

  BucketBackend(int bucket, int num_slots)
      : ForwardingBackend(kernels::MakeCpuBackend({.num_threads = 2})),
        bucket_(bucket),
        num_slots_(num_slots) {}

  int PadDecodes(int num_seqs) const override {
    return std::min(num_slots_, (num_seqs + bucket_ - 1) / bucket_ * bucket_);
  }
  void RunDecodes(int num_seqs, const std::function<void()>& ops) override {
    EXPECT_EQ(num_seqs, PadDecodes(num_seqs));
    calls_.clear();
    ops();
    const auto [first, is_new] = first_calls_.emplace(num_seqs, calls_);
    if (!is_new) {
      EXPECT_EQ(calls_, first->second) << num_seqs;
    }
    ++num_runs_;
  }
  void FeedTokens(const kernels::SlotStates& states, const int32_t* slots, int num_slots,
                  int32_t* ids) override {
    Note({&states, slots, ids}, num_slots);
    real_->FeedTokens(states, slots, num_slots, ids);
  }
  void Embed(const int32_t* ids, const kernels::LinearWeight& table, float scale,
             TensorView x) override {
    Note({ids, x.data}, x.rows);
    real_->Embed(ids, table, scale, x);
  }
  void NormRopeStoreKv(TensorView qkv, const kernels::NormRopeInputs& in,
                       const kernels::AttentionShape& shape, const PoolBatch& batch,
                       const kernels::KvLayer& layer, TensorView q_out) override {
    NoteBatch(batch);
    real_->NormRopeStoreKv(qkv, in, shape, batch, layer, q_out);
  }
  void Attention(TensorView q, const kernels::AttentionShape& shape, const PoolBatch& batch,
                 const kernels::KvLayer& layer, TensorView out) override {
    NoteBatch(batch);
    real_->Attention(q, shape, batch, layer, out);
  }
  void GatherRows(TensorView x, const int32_t* rows, TensorView out) override {
    Note({rows, out.data}, out.rows);
    real_->GatherRows(x, rows, out);
  }
  void Sample(TensorView logits, const int32_t* slots, kernels::SlotStates& states,
              kernels::SampledToken* out) override {
    Note({logits.data, slots, out}, logits.rows);
    real_->Sample(logits, slots, states, out);
  }

  int num_runs() const { return num_runs_; }
  size_t num_shapes() const { return first_calls_.size(); }

 private:
  void Note(std::initializer_list<const void*> arguments, int64_t count) {
    calls_.insert(calls_.end(), arguments);
    calls_.push_back(reinterpret_cast<const void*>(count));
  }
  void NoteBatch(const PoolBatch& b) {
    Note({b.positions, b.cu_seqlens_q, b.context_lens, b.slots, b.slot_mapping, b.block_tables},
         b.num_tokens);
    Note({}, b.num_seqs);
    Note({}, b.max_blocks_per_seq);
  }

  const int bucket_;
  const int num_slots_;
  Calls calls_;  // arguments of the step's ops
  std::map<int, Calls> first_calls_;
  int num_runs_ = 0;
};

constexpr int kNumSlots = 7;

std::pair<std::unique_ptr<Engine>, BucketBackend*> MakeEngine(int bucket) {
  const auto checkpoint = model::Checkpoint::Open(WEIGHTLESS_SOURCE_DIR "/models/tiny-gemma3");
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  auto backend = std::make_unique<BucketBackend>(bucket, kNumSlots);
  BucketBackend* observed = backend.get();
  auto engine = Engine::Create(**checkpoint, std::move(backend),
                               {.num_slots = kNumSlots,
                                .num_full_blocks = 64,
                                .num_sliding_blocks = 64,
                                .steps_in_flight = 2});
  EXPECT_TRUE(engine.ok()) << engine.status();
  return {*std::move(engine), observed};
}

// Sequences come one after the other and leave again; most steps only decode.
std::vector<proto::StepResult> RunAll(Engine& engine) {
  std::vector<proto::StepResult> results;
  std::vector<int> decoding;
  uint64_t step = 0;
  const auto run = [&](proto::StepPlan plan) {
    plan.set_step(++step);
    SetDecode(plan, decoding);
    const auto result = engine.Step(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    results.push_back(*result);
    results.back().clear_compute_ns();
  };
  for (int slot = 0; slot < kNumSlots; ++slot) {
    proto::StepPlan plan;
    proto::Sampling& sampling =
        *AddAdmit(plan, slot, ArbitraryPrompt(61 + slot, static_cast<uint32_t>(slot)))
             .mutable_sampling();
    sampling.set_temperature(slot % 2 == 0 ? 0.0f : 1.0f);
    sampling.set_repetition_penalty(1.2f);
    sampling.set_seed(slot);
    const auto first = static_cast<uint32_t>(slot * 4);
    AddBlocks(plan, slot, 0, Blocks(first, 1), Blocks(first, 1));
    AddBlocks(plan, slot, 1, Blocks(first + 1, 1), Blocks(first + 1, 1));
    AddPrefill(plan, slot, 61 + slot);
    run(plan);
    decoding.insert(decoding.begin(), slot);
    for (int i = 0; i < 4; ++i) run({});
  }
  for (int slot = 0; slot < kNumSlots; ++slot) {
    decoding.pop_back();
    proto::StepPlan plan;
    plan.add_release(static_cast<uint32_t>(slot));
    run(plan);
  }
  return results;
}

TEST(EngineDecodesTest, PaddingChangesNoResult) {
  const auto expected = RunAll(*MakeEngine(1).first);
  for (const int bucket : {2, 4, 7}) {
    SCOPED_TRACE(bucket);
    const auto results = RunAll(*MakeEngine(bucket).first);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].SerializeAsString(), expected[i].SerializeAsString()) << i;
    }
  }
}

TEST(EngineDecodesTest, EqualShapesAreEqualCalls) {
  const auto [engine, backend] = MakeEngine(4);
  RunAll(*engine);
  EXPECT_EQ(backend->num_shapes(), 2u);  // 4 and all 7 slots
  EXPECT_EQ(backend->num_runs(), kNumSlots * 4 + kNumSlots - 1);
}

}  // namespace
}  // namespace weightless::worker
