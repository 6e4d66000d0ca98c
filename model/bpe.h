// Byte-pair merging of normalised text (spaces already U+2581) into token ids.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"

namespace weightless::model {

// left and right, adjacent, become result. A list of merges is in order of priority.
struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

inline constexpr size_t kMaxMerges = 1 << 23;

// The rule, that of the tokenizers library: symbols are the characters of the text, or the bytes of
// a character that is no piece; the adjacent pair of the lowest rank, leftmost on ties, is merged
// until no pair has a rank. Merges with a special result are never applied: no user text spells a
// control token.
//
// The text is one segment without word borders, but between two characters that no merge result
// has side by side no merge can ever reach across, so it is cut there and each stretch is merged
// alone. A stretch that is a piece and merges to itself costs one look-up; whether it does is found
// out at its first use. Short stretches are scanned, long ones use a heap: O(n log n).
//
// Thread-safe. `vocabulary` outlives this and is complete.
class BpeEncoder {
 public:
  BpeEncoder(const Vocabulary& vocabulary, const std::vector<Merge>& merges);

  // Buffers that calls of one thread share.
  struct Scratch {
    struct Symbol {
      int32_t id;
      uint32_t rank;      // of the pair with the next symbol; kNoRank if it has none
      int32_t merged;     // the result of that pair
      uint32_t next;      // in the heap path: indices of the neighbours,
      uint32_t previous;  // or kNone
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol
  };

  // Appends the ids of `text` (any bytes) to `out`. Requires text.size() < 2^32.
  void Encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const;

 private:
  using Symbol = Scratch::Symbol;
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Pair {
    int32_t left = -1;  // -1: a free slot
    int32_t right = -1;
    uint32_t rank = kNoRank;
    int32_t result = -1;
  };

  void AddPair(const Merge& merge, uint32_t rank);
  void AddCharacters();
  void AddBorders(std::string_view piece);
  const Pair* FindPair(int32_t left, int32_t right) const;
  void SetPair(Symbol& left, int32_t right_id) const;
  int32_t FindCharacter(uint32_t code_point) const;
  bool MayJoin(uint32_t left, uint32_t right) const;
  void EncodeStretch(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const;
  void MergeShort(std::vector<Symbol>& symbols) const;
  void MergeLong(Scratch& scratch) const;

  const Vocabulary& vocabulary_;
  std::vector<Pair> pairs_;           // open addressing, a power of two, at most half full
  int pairs_shift_ = 0;               // hash bits to drop
  std::vector<uint16_t> char_pages_;  // code point / 256 -> page of char_ids_
  std::vector<int32_t> char_ids_;     // pages of 256; page 0 is empty
  std::vector<uint64_t> borders_;     // bit set over hashes of character pairs inside results
  enum class SelfState : uint8_t { kUnknown, kYes, kNo };
  // By id: does the piece's text merge to the piece. A memo: its races are benign.
  std::unique_ptr<std::atomic<SelfState>[]> self_;
};

}  // namespace weightless::model
