// What the three tokenizer loaders share: they fill the same parts, and one encoder is made of
// them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/concat.h"
#include "model/bpe.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace weightless::model {

struct TokenizerParts {
  Vocabulary vocabulary;
  std::vector<Merge> merges;  // by priority
  int32_t bos_id = -1;
};

// Checks what holds for every source: any text can be spelled, and there is a BOS token.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerParts parts,
                                                         std::string_view name);

// The merge of two pieces by their text. kInvalidArgument when either, or their concatenation, is
// no piece, or when one is a byte token.
absl::StatusOr<Merge> ResolveMerge(const Vocabulary& vocabulary, std::string_view left,
                                   std::string_view right);

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

// `status` with "prefix: " before its message.
absl::Status Annotate(const absl::Status& status, std::string_view prefix);

}  // namespace weightless::model
