#include "model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "common/check.h"
#include "model/utf8.h"

namespace weightless::model {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;
constexpr size_t kMaxShortSymbols = 24;  // a quadratic scan beats the heap up to about here

uint64_t Mix(uint32_t left, uint32_t right) {
  return (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
}

}  // namespace

BpeEncoder::BpeEncoder(const Vocabulary& vocabulary, const std::vector<Merge>& merges)
    : vocabulary_(vocabulary) {
  CHECK(merges.size() <= kMaxMerges);
  const size_t num_slots = std::bit_ceil(std::max<size_t>(merges.size() * 2, 16));
  pairs_.resize(num_slots);
  pairs_shift_ = 64 - std::countr_zero(num_slots);
  const size_t num_pieces = static_cast<size_t>(vocabulary.size());
  borders_.resize(std::bit_ceil(std::max<size_t>(num_pieces, 64)) / 4);  // 16 bits for each piece
  self_ = std::make_unique<std::atomic<SelfState>[]>(num_pieces);
  AddCharacters();
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    if (vocabulary.flags(merges[rank].result).special) continue;
    AddPair(merges[rank], static_cast<uint32_t>(rank));
    AddBorders(vocabulary.Piece(merges[rank].result));
  }
}

void BpeEncoder::AddPair(const Merge& merge, uint32_t rank) {
  size_t i =
      Mix(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right)) >> pairs_shift_;
  while (pairs_[i].left >= 0) i = (i + 1) & (pairs_.size() - 1);
  pairs_[i] = {merge.left, merge.right, rank, merge.result};
}

void BpeEncoder::AddCharacters() {
  char_pages_.assign(kMaxCodePoint / 256 + 1, 0);
  char_ids_.assign(256, -1);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view piece = vocabulary_.Piece(id);
    const Vocabulary::Flags flags = vocabulary_.flags(id);
    if (piece.empty() || flags.special || flags.unused) continue;
    const Utf8Step step = DecodeUtf8(piece);
    if (static_cast<size_t>(step.length) != piece.size()) continue;
    uint16_t& page = char_pages_[step.code_point / 256];
    if (page == 0) {
      page = static_cast<uint16_t>(char_ids_.size() / 256);
      char_ids_.resize(char_ids_.size() + 256, -1);
    }
    char_ids_[page * 256u + step.code_point % 256] = id;
  }
}

void BpeEncoder::AddBorders(std::string_view piece) {
  const uint64_t num_bits = borders_.size() * 64;
  uint32_t previous = 0;
  for (size_t i = 0; i < piece.size();) {
    const Utf8Step step = DecodeUtf8(piece.substr(i));
    if (i > 0) {
      const uint64_t bit = (Mix(previous, step.code_point) >> 20) & (num_bits - 1);
      borders_[bit / 64] |= uint64_t{1} << bit % 64;
    }
    previous = step.code_point;
    i += static_cast<size_t>(step.length);
  }
}

bool BpeEncoder::MayJoin(uint32_t left, uint32_t right) const {
  const uint64_t bit = (Mix(left, right) >> 20) & (borders_.size() * 64 - 1);
  return borders_[bit / 64] >> bit % 64 & 1;
}

int32_t BpeEncoder::FindCharacter(uint32_t code_point) const {
  return char_ids_[char_pages_[code_point / 256] * 256u + code_point % 256];
}

const BpeEncoder::Pair* BpeEncoder::FindPair(int32_t left, int32_t right) const {
  size_t i = Mix(static_cast<uint32_t>(left), static_cast<uint32_t>(right)) >> pairs_shift_;
  for (; pairs_[i].left >= 0; i = (i + 1) & (pairs_.size() - 1)) {
    if (pairs_[i].left == left && pairs_[i].right == right) return &pairs_[i];
  }
  return nullptr;
}

void BpeEncoder::SetPair(Symbol& left, int32_t right_id) const {
  const Pair* pair = FindPair(left.id, right_id);
  left.rank = pair == nullptr ? kNoRank : pair->rank;
  left.merged = pair == nullptr ? -1 : pair->result;
}

void BpeEncoder::Encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& out) const {
  CHECK(text.size() < UINT32_MAX);
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.clear();
  size_t begin = 0;  // of the stretch whose symbols are collected
  uint32_t previous = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(i));
    const int32_t id = step.kind == Utf8Kind::kValid ? FindCharacter(step.code_point) : -1;
    if (!symbols.empty() && (id < 0 || !MayJoin(previous, step.code_point))) {
      EncodeStretch(text.substr(begin, i - begin), scratch, out);
    }
    const size_t end = i + static_cast<size_t>(step.length);
    if (id < 0) {
      for (; i < end; ++i) {
        out.push_back(vocabulary_.byte_token(static_cast<unsigned char>(text[i])));
      }
      continue;
    }
    if (symbols.empty()) begin = i;
    symbols.push_back({id, kNoRank, -1, kNone, kNone});
    previous = step.code_point;
    i = end;
  }
  if (!symbols.empty()) EncodeStretch(text.substr(begin), scratch, out);
}

// Consumes scratch.symbols, the characters of `text`.
void BpeEncoder::EncodeStretch(std::string_view text, Scratch& scratch,
                               std::vector<int32_t>& out) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  int32_t whole = -1;
  if (symbols.size() > 1 && text.size() <= Vocabulary::kMaxPieceBytes) {
    whole = vocabulary_.Find(text);
  }
  std::atomic<SelfState>* self = whole < 0 ? nullptr : &self_[static_cast<size_t>(whole)];
  if (self != nullptr && self->load(std::memory_order_relaxed) == SelfState::kYes) {
    out.push_back(whole);
    symbols.clear();
    return;
  }
  for (size_t i = 0; i + 1 < symbols.size(); ++i) SetPair(symbols[i], symbols[i + 1].id);
  if (symbols.size() <= kMaxShortSymbols) {
    MergeShort(symbols);
  } else {
    MergeLong(scratch);
  }
  for (const Symbol& symbol : symbols) out.push_back(symbol.id);
  if (self != nullptr) {
    const bool yes = symbols.size() == 1 && symbols[0].id == whole;
    self->store(yes ? SelfState::kYes : SelfState::kNo, std::memory_order_relaxed);
  }
  symbols.clear();
}

void BpeEncoder::MergeShort(std::vector<Symbol>& symbols) const {
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNoRank) return;
    symbols[best].id = symbols[best].merged;
    symbols[best].rank = kNoRank;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    if (best + 1 < symbols.size()) SetPair(symbols[best], symbols[best + 1].id);
    if (best > 0) SetPair(symbols[best - 1], symbols[best].id);
  }
}

void BpeEncoder::MergeLong(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  const uint32_t num_symbols = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < num_symbols; ++i) {
    symbols[i].previous = i == 0 ? kNone : i - 1;
    symbols[i].next = i + 1 == num_symbols ? kNone : i + 1;
    if (symbols[i].rank != kNoRank) heap.push_back(uint64_t{symbols[i].rank} << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto set_pair = [&](uint32_t i) {
    symbols[i].rank = kNoRank;
    if (symbols[i].next == kNone) return;
    SetPair(symbols[i], symbols[symbols[i].next].id);
    if (symbols[i].rank == kNoRank) return;
    heap.push_back(uint64_t{symbols[i].rank} << 32 | i);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<uint32_t>(top)];
    if (left.rank != top >> 32) continue;  // the pair has changed since
    Symbol& right = symbols[left.next];
    left.id = left.merged;
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].previous = static_cast<uint32_t>(top);
    right.id = -1;
    right.rank = kNoRank;
    set_pair(static_cast<uint32_t>(top));
    if (left.previous != kNone) set_pair(left.previous);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace weightless::model
