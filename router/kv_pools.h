// The two block pools of a replica and what a sequence holds in them. Layers with full attention
// keep every position; sliding layers keep the blocks that touch the window of the next position to
// be computed:
//
//   position      0         64        128       192       256
//   full          [ block 0 | block 1 | block 2 | block 3 |
//   sliding       (  given back  )    [ block 2 | block 3 |      next position 250, window 100:
//                                                                 sees 151 .. 250
#pragma once

#include <cstdint>
#include <span>

#include "proto/worker.pb.h"
#include "router/block_pool.h"
#include "router/prefix_hash.h"
#include "router/sequence.h"

namespace weightless::router {

// Owned by the engine thread.
class KvPools {
 public:
  explicit KvPools(const proto::Geometry& geometry);

  const BlockPool& full() const { return full_; }
  const BlockPool& sliding() const { return sliding_; }
  // Grows whenever a block becomes free: what did not fit may fit now.
  uint64_t num_releases() const { return num_releases_; }

  // Tokens that one sequence can hold when it is alone.
  static int64_t Capacity(const proto::Geometry& geometry);
  // Tokens, prompt and output, of the longest sequence that a worker can run: its context, or fewer
  // when its blocks are. The last token is sampled, never computed.
  static int64_t MaxSequenceLen(const proto::Geometry& geometry);

  // The longest prefix, in blocks and at most `max_blocks`, whose K and V are all here.
  int FindPrefix(std::span<const PrefixHash> hashes, int max_blocks) const;
  // Whether `num_tokens` can be held, the first `num_cached` blocks of them being here already,
  // with so many free blocks left over.
  struct Demand {
    std::span<const PrefixHash> hashes;
    int num_cached = 0;
    int num_tokens = 0;
    int num_spare_full = 0;
    int num_spare_sliding = 0;
  };
  bool CanAdmit(const Demand& demand) const;
  // Takes the cached blocks and the full blocks of all known tokens. Requires CanAdmit.
  void Admit(Sequence& sequence, int num_cached);
  // Sliding blocks that a sequence of so many known tokens holds at most, and lacks yet.
  int SlidingPeak(int num_tokens) const;
  int SlidingLack(const Sequence& sequence) const;

  // Makes the tables cover the next `num_tokens` positions, or as many as there are blocks for;
  // returns how many (0: none). First gives back what is behind the window.
  int Cover(Sequence& sequence, int num_tokens);

  // Offers every full block of computed, committed tokens to the prefix cache.
  void Publish(Sequence& sequence);
  // Gives all blocks back; the deepest are reused first.
  void Release(Sequence& sequence);

  void CheckInvariants() const;

 private:
  int WindowBegin(int position) const;  // logical index of the first block that `position` sees
  void DropBehindWindow(Sequence& sequence);
  static void Extend(BlockPool& pool, BlockTable& table, int end);

  const int block_size_;
  const int window_;  // 0: no sliding layers
  BlockPool full_;
  BlockPool sliding_;
  uint64_t num_releases_ = 0;
};

}  // namespace weightless::router
