// The blocks of one KV pool of one replica: which are free, which are shared, and which hold a
// known prefix. A block is referenced by any number of sequences, or free. A free block that holds
// a known prefix (cached) stays findable until it is the least recently used of the free blocks and
// its space is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/prefix_hash.h"

namespace weightless::router {

// Owned by the engine thread. Every operation is O(1).
class BlockPool {
 public:
  explicit BlockPool(int num_blocks);

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int num_free() const { return num_free_; }      // referenced by nobody, cached or not
  int num_cached() const { return num_cached_; }  // of the free ones: still findable
  int num_used() const { return num_blocks() - num_free_; }

  // A free block with one reference; what it held is forgotten. Requires num_free() > 0.
  uint32_t Allocate();
  // One more reference to a block that Find returned, or that is in use.
  void Ref(uint32_t block);
  // One reference less. The last one makes the block free: most recently used if it is found
  // under a hash, else the next to be taken.
  void Unref(uint32_t block);

  std::optional<uint32_t> Find(const PrefixHash& hash) const;
  bool IsFree(uint32_t block) const { return blocks_[block].num_refs == 0; }
  // From now on the block is found under `hash`. Nothing happens when another block already is, or
  // this one has a hash. Requires a reference.
  void Publish(uint32_t block, const PrefixHash& hash);

  // CHECK-fails when counts, lists and map disagree. O(num_blocks).
  void CheckInvariants() const;

 private:
  struct Block {
    int num_refs = 0;
    std::optional<PrefixHash> hash;
  };
  struct Link {
    uint32_t previous = 0, next = 0;
  };

  // The free list is a ring of links closed by one extra entry, `ring()`: its next is what Allocate
  // takes, its previous the most recently used.
  uint32_t ring() const { return static_cast<uint32_t>(blocks_.size()); }
  void InsertAfter(uint32_t place, uint32_t block);
  void Unlink(uint32_t block);

  std::vector<Block> blocks_;
  std::vector<Link> links_;
  absl::flat_hash_map<PrefixHash, uint32_t> by_hash_;
  int num_free_ = 0;
  int num_cached_ = 0;
};

}  // namespace weightless::router
