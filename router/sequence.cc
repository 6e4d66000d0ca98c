#include "router/sequence.h"

#include <span>
#include <utility>

namespace weightless::router {

std::unique_ptr<Sequence> MakeSequence(SequenceRequest request, std::shared_ptr<TokenStream> stream,
                                       const proto::Description& served,
                                       const PrefixHasher& hasher) {
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = std::move(request.prompt);
  sequence->num_prompt_tokens = sequence->num_tokens();
  sequence->root_hash = hasher.Root(served.model().weight_identity(), request.cache_salt);
  sequence->request = std::move(request);
  sequence->stream = std::move(stream);

  const size_t block_size = served.geometry().block_size();
  const std::span<const int32_t> tokens(sequence->tokens);
  PrefixHash hash = sequence->root_hash;
  for (size_t end = block_size; end <= tokens.size(); end += block_size) {
    hash = hasher.Next(hash, tokens.subspan(end - block_size, block_size));
    sequence->hashes.push_back(hash);
  }
  return sequence;
}

}  // namespace weightless::router
