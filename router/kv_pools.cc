#include "router/kv_pools.h"

#include <algorithm>

#include "common/check.h"

namespace weightless::router {

namespace {

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

// Blocks that a window touches at most: one more than it fills when it begins at the end of a
// block.
int64_t WindowBlocks(int64_t window, int64_t block_size) {
  return (window - 1 + block_size - 1) / block_size + 1;
}

}  // namespace

KvPools::KvPools(const proto::Geometry& geometry)
    : block_size_(static_cast<int>(geometry.block_size())),
      window_(geometry.num_sliding_blocks() > 0 ? static_cast<int>(geometry.sliding_window()) : 0),
      full_(static_cast<int>(geometry.num_full_blocks())),
      sliding_(static_cast<int>(geometry.num_sliding_blocks())) {}

int KvPools::WindowBegin(int position) const {
  return std::max(0, position - window_ + 1) / block_size_;
}

int KvPools::SlidingPeak(int num_tokens) const {
  if (window_ == 0) return 0;
  return std::min(CeilDiv(num_tokens, block_size_),
                  static_cast<int>(WindowBlocks(window_, block_size_)));
}

int KvPools::SlidingLack(const Sequence& sequence) const {
  const int num_held = sequence.on.sliding.end() - sequence.on.sliding.begin;
  return std::max(0, SlidingPeak(sequence.num_tokens() + 1) - num_held);
}

int64_t KvPools::Capacity(const proto::Geometry& geometry) {
  const int64_t block_size = geometry.block_size();
  const int64_t full = geometry.num_full_blocks() * block_size;
  const int64_t num_sliding = geometry.num_sliding_blocks();
  if (num_sliding == 0) return full;
  const int64_t num_window = WindowBlocks(geometry.sliding_window(), block_size);
  return num_sliding >= num_window ? full : std::min(full, num_sliding * block_size);
}

int64_t KvPools::MaxSequenceLen(const proto::Geometry& geometry) {
  return std::min<int64_t>(geometry.max_context(), Capacity(geometry) + 1);
}

int KvPools::FindPrefix(std::span<const PrefixHash> hashes, int max_blocks) const {
  int best = 0;
  int num_sliding_run = 0;  // consecutive sliding blocks found, up to and with block i
  const int num_blocks = std::min(max_blocks, static_cast<int>(hashes.size()));
  for (int i = 0; i < num_blocks; ++i) {
    const PrefixHash& hash = hashes[static_cast<size_t>(i)];
    if (!full_.Find(hash).has_value()) break;
    if (window_ == 0) {
      best = i + 1;
      continue;
    }
    num_sliding_run = sliding_.Find(hash).has_value() ? num_sliding_run + 1 : 0;
    const int num_needed = i + 1 - WindowBegin((i + 1) * block_size_);
    if (num_sliding_run >= num_needed) best = i + 1;
  }
  return best;
}

bool KvPools::CanAdmit(const Demand& demand) const {
  // Cached blocks that nobody references count as free until they are taken.
  int num_full_taken = 0, num_sliding_taken = 0;
  const int sliding_begin = WindowBegin(demand.num_cached * block_size_);
  for (int i = 0; i < demand.num_cached; ++i) {
    const PrefixHash& hash = demand.hashes[static_cast<size_t>(i)];
    if (full_.IsFree(*full_.Find(hash))) ++num_full_taken;
    if (window_ > 0 && i >= sliding_begin && sliding_.IsFree(*sliding_.Find(hash))) {
      ++num_sliding_taken;
    }
  }
  const int num_full = CeilDiv(demand.num_tokens, block_size_) - demand.num_cached;
  if (full_.num_free() - num_full_taken < num_full + demand.num_spare_full) return false;
  if (window_ == 0) return true;
  const int num_held = demand.num_cached - sliding_begin;
  const int num_sliding = std::max(0, SlidingPeak(demand.num_tokens) - num_held);
  return sliding_.num_free() - num_sliding_taken >= num_sliding + demand.num_spare_sliding;
}

void KvPools::Admit(Sequence& sequence, int num_cached) {
  Residence& on = sequence.on;
  for (int i = 0; i < num_cached; ++i) {
    const uint32_t block = *full_.Find(sequence.hashes[static_cast<size_t>(i)]);
    full_.Ref(block);
    on.full.blocks.push_back(block);
  }
  if (window_ > 0) {
    on.sliding.begin = WindowBegin(num_cached * block_size_);
    on.sliding.blocks.resize(static_cast<size_t>(num_cached));
    for (int i = on.sliding.begin; i < num_cached; ++i) {
      const uint32_t block = *sliding_.Find(sequence.hashes[static_cast<size_t>(i)]);
      sliding_.Ref(block);
      on.sliding.blocks[static_cast<size_t>(i)] = block;
    }
  }
  on.num_published = num_cached;
  on.num_computed = on.num_committed = num_cached * block_size_;
  Extend(full_, on.full, CeilDiv(on.num_known, block_size_));
}

void KvPools::Extend(BlockPool& pool, BlockTable& table, int end) {
  while (table.end() < end) table.blocks.push_back(pool.Allocate());
}

void KvPools::DropBehindWindow(Sequence& sequence) {
  BlockTable& table = sequence.on.sliding;
  const int begin = std::min(WindowBegin(sequence.on.num_computed), table.end());
  for (; table.begin < begin; ++table.begin) {
    sliding_.Unref(table.blocks[static_cast<size_t>(table.begin)]);
    ++num_releases_;
  }
}

int KvPools::Cover(Sequence& sequence, int num_tokens) {
  Residence& on = sequence.on;
  if (window_ > 0) DropBehindWindow(sequence);
  const int position = on.num_computed;
  const int full_reach = (on.full.end() + full_.num_free()) * block_size_;
  int end = std::min(position + num_tokens, full_reach);
  if (window_ > 0) {
    end = std::min(end, (on.sliding.end() + sliding_.num_free()) * block_size_);
  }
  if (end <= position) return 0;
  Extend(full_, on.full, CeilDiv(end, block_size_));
  if (window_ > 0) Extend(sliding_, on.sliding, CeilDiv(end, block_size_));
  return end - position;
}

void KvPools::Publish(Sequence& sequence) {
  Residence& on = sequence.on;
  const int num_known = std::min(sequence.num_tokens(), on.num_computed);
  for (; (on.num_published + 1) * block_size_ <= num_known; ++on.num_published) {
    const auto i = static_cast<size_t>(on.num_published);
    full_.Publish(on.full.blocks[i], sequence.hashes[i]);
    if (window_ > 0 && on.num_published >= on.sliding.begin) {
      sliding_.Publish(on.sliding.blocks[i], sequence.hashes[i]);
    }
  }
}

void KvPools::Release(Sequence& sequence) {
  Residence& on = sequence.on;
  for (int i = on.full.end(); i-- > 0;) full_.Unref(on.full.blocks[static_cast<size_t>(i)]);
  for (int i = on.sliding.end(); i-- > on.sliding.begin;) {
    sliding_.Unref(on.sliding.blocks[static_cast<size_t>(i)]);
  }
  on.full = {};
  on.sliding = {};
  ++num_releases_;
}

void KvPools::CheckInvariants() const {
  full_.CheckInvariants();
  sliding_.CheckInvariants();
}

}  // namespace weightless::router
