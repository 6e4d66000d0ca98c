#include "model/added_tokens.h"

#include <algorithm>
#include <utility>

namespace weightless::model {

AddedTokens::AddedTokens(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.flags(id).added) tokens.emplace_back(vocabulary.Piece(id), id);
  }
  std::sort(tokens.begin(), tokens.end());

  // Breadth first: a node is the range of sorted tokens that share its prefix of `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, tokens.size(), 0}};
  nodes_.emplace_back();
  for (size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && tokens[begin].first.size() == depth) {
      nodes_[n].id = tokens[begin].second;
      nodes_[n].special = vocabulary.flags(nodes_[n].id).special;
      ++begin;
    }
    nodes_[n].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && tokens[next].first[depth] == byte) ++next;
      edges_.push_back({byte, static_cast<uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[n].num_edges;
      begin = next;
    }
  }
  for (uint32_t i = 0; i < nodes_[0].num_edges; ++i) {
    first_bytes_.set(static_cast<unsigned char>(edges_[i].byte));
  }
}

const AddedTokens::Edge* AddedTokens::FindEdge(const Node& node, char byte) const {
  const Edge* begin = edges_.data() + node.first_edge;
  const Edge* end = begin + node.num_edges;
  const auto before = [](const Edge& edge, char b) {
    return static_cast<unsigned char>(edge.byte) < static_cast<unsigned char>(b);
  };
  const Edge* edge = std::lower_bound(begin, end, byte, before);
  return edge != end && edge->byte == byte ? edge : nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::Longest(std::string_view text,
                                                       size_t special_limit) const {
  std::optional<Match> best;
  const Node* node = &nodes_[0];
  for (size_t length = 0;; ++length) {
    if (node->id >= 0 && (!node->special || length <= special_limit)) best = {node->id, length};
    if (length == text.size()) return best;
    const Edge* edge = FindEdge(*node, text[length]);
    if (edge == nullptr) return best;
    node = &nodes_[edge->node];
  }
}

}  // namespace weightless::model
