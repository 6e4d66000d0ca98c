// The merges that a scored vocabulary implies.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/bpe.h"
#include "model/vocabulary.h"

namespace weightless::model {

// Every way to split a piece into two pieces, highest score first; of equal scores the split with
// the longer left part first, then the longer right part, then the smaller id. This is the order in
// which converters write the merges of a tokenizer.json, so that a SentencePiece model and its
// conversion encode alike also where several splits of one piece compete.
//
// scores: by id, finite, one for each id of the vocabulary; added tokens count as 0. Special and
// unused pieces take no part, byte tokens are only results. kInvalidArgument beyond kMaxMerges.
absl::StatusOr<std::vector<Merge>> MergesFromScores(const Vocabulary& vocabulary,
                                                    std::span<const float> scores);

}  // namespace weightless::model
