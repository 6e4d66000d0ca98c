#include "router/block_pool.h"

#include "common/check.h"

namespace weightless::router {

BlockPool::BlockPool(int num_blocks)
    : blocks_(static_cast<size_t>(num_blocks)), links_(blocks_.size() + 1) {
  links_[ring()] = {.previous = ring(), .next = ring()};
  for (uint32_t block = 0; block < blocks_.size(); ++block) {
    InsertAfter(links_[ring()].previous, block);
  }
  num_free_ = num_blocks;
}

void BlockPool::InsertAfter(uint32_t place, uint32_t block) {
  const uint32_t next = links_[place].next;
  links_[block] = {.previous = place, .next = next};
  links_[place].next = block;
  links_[next].previous = block;
}

void BlockPool::Unlink(uint32_t block) {
  const Link link = links_[block];
  links_[link.previous].next = link.next;
  links_[link.next].previous = link.previous;
}

uint32_t BlockPool::Allocate() {
  CHECK(num_free_ > 0);
  const uint32_t id = links_[ring()].next;
  Unlink(id);
  --num_free_;
  Block& block = blocks_[id];
  if (block.hash.has_value()) {
    by_hash_.erase(*block.hash);
    block.hash.reset();
    --num_cached_;
  }
  block.num_refs = 1;
  return id;
}

void BlockPool::Ref(uint32_t id) {
  Block& block = blocks_[id];
  if (block.num_refs == 0) {
    CHECK(block.hash.has_value());
    Unlink(id);
    --num_free_;
    --num_cached_;
  }
  ++block.num_refs;
}

void BlockPool::Unref(uint32_t id) {
  Block& block = blocks_[id];
  CHECK(block.num_refs > 0);
  if (--block.num_refs > 0) return;
  ++num_free_;
  if (block.hash.has_value()) {
    ++num_cached_;
    InsertAfter(links_[ring()].previous, id);
  } else {
    InsertAfter(ring(), id);  // nothing to lose: taken first
  }
}

std::optional<uint32_t> BlockPool::Find(const PrefixHash& hash) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  return found->second;
}

void BlockPool::Publish(uint32_t id, const PrefixHash& hash) {
  Block& block = blocks_[id];
  CHECK(block.num_refs > 0);
  if (block.hash.has_value()) return;
  if (by_hash_.try_emplace(hash, id).second) block.hash = hash;
}

void BlockPool::CheckInvariants() const {
  int num_free = 0, num_cached = 0;
  size_t num_hashed = 0;
  for (uint32_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    CHECK(block.num_refs >= 0);
    if (block.num_refs == 0) ++num_free;
    if (!block.hash.has_value()) continue;
    ++num_hashed;
    if (block.num_refs == 0) ++num_cached;
    const auto found = by_hash_.find(*block.hash);
    CHECK(found != by_hash_.end() && found->second == id);
  }
  CHECK(num_free == num_free_ && num_cached == num_cached_ && num_hashed == by_hash_.size());

  int num_linked = 0;
  for (uint32_t id = links_[ring()].next; id != ring(); id = links_[id].next) {
    CHECK(blocks_[id].num_refs == 0 && links_[links_[id].next].previous == id);
    CHECK(++num_linked <= num_free_);
  }
  CHECK(num_linked == num_free_);
}

}  // namespace weightless::router
