// Finds added tokens in raw text: at each position the longest one wins.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"

namespace weightless::model {

// A trie over the pieces flagged added. Immutable, thread-safe.
class AddedTokens {
 public:
  struct Match {
    int32_t id;
    size_t length;  // bytes
  };

  explicit AddedTokens(const Vocabulary& vocabulary);

  // False means that no added token starts with this byte.
  bool MayStart(char first) const { return first_bytes_[static_cast<unsigned char>(first)]; }
  // The longest added token that `text` starts with, if any; tokens flagged special only where they
  // fit into the first `special_limit` bytes. Cost: the length of the longest token.
  std::optional<Match> Longest(std::string_view text, size_t special_limit) const;

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t id = -1;  // of the token that ends here
    bool special = false;
  };
  struct Edge {
    char byte;
    uint32_t node;
  };

  const Edge* FindEdge(const Node& node, char byte) const;

  std::vector<Node> nodes_;  // nodes_[0] is the root
  std::vector<Edge> edges_;  // those of one node are adjacent, in order of their bytes
  std::bitset<256> first_bytes_;
};

}  // namespace weightless::model
