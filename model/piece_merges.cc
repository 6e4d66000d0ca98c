#include "model/piece_merges.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "common/check.h"
#include "common/concat.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

struct Split {
  float score;
  int left_chars;
  int right_chars;
  Merge merge;
};

bool Before(const Split& a, const Split& b) {
  return std::tuple(-a.score, -a.left_chars, -a.right_chars, a.merge.result) <
         std::tuple(-b.score, -b.left_chars, -b.right_chars, b.merge.result);
}

bool MayBePart(const Vocabulary& vocabulary, int32_t id) {
  if (id < 0 || vocabulary.IsByteToken(id)) return false;
  const Vocabulary::Flags flags = vocabulary.flags(id);
  return !flags.special && !flags.unused;
}

void AddSplits(const Vocabulary& vocabulary, int32_t result, float score,
               std::vector<Split>& splits) {
  const std::string_view piece = vocabulary.Piece(result);
  const auto num_chars = static_cast<int>(
      std::count_if(piece.begin(), piece.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  int left_chars = 0;
  for (size_t i = 0; i < piece.size();) {
    i += static_cast<size_t>(DecodeUtf8(piece.substr(i)).length);
    if (++left_chars == num_chars) return;
    const int32_t left = vocabulary.Find(piece.substr(0, i));
    if (!MayBePart(vocabulary, left)) continue;
    const int32_t right = vocabulary.Find(piece.substr(i));
    if (!MayBePart(vocabulary, right)) continue;
    splits.push_back({score, left_chars, num_chars - left_chars, {left, right, result}});
  }
}

}  // namespace

absl::StatusOr<std::vector<Merge>> MergesFromScores(const Vocabulary& vocabulary,
                                                    std::span<const float> scores) {
  CHECK(scores.size() == static_cast<size_t>(vocabulary.size()));
  std::vector<Split> splits;
  splits.reserve(scores.size() * 2);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const Vocabulary::Flags flags = vocabulary.flags(id);
    if (flags.special || flags.unused) continue;
    AddSplits(vocabulary, id, flags.added ? 0 : scores[static_cast<size_t>(id)], splits);
    if (splits.size() > kMaxMerges) {
      return absl::InvalidArgumentError(Concat("the pieces up to id ", id, " imply ", splits.size(),
                                               " merges, limit ", kMaxMerges));
    }
  }
  std::sort(splits.begin(), splits.end(), Before);
  std::vector<Merge> merges;
  merges.reserve(splits.size());
  for (const Split& split : splits) merges.push_back(split.merge);
  return merges;
}

}  // namespace weightless::model
