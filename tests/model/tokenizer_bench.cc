// How fast a tokenizer loads, encodes and decodes; for a person, not a test.
//
//   tokenizer_bench TEXT_FILE TOKENIZER...     each a tokenizer.json, tokenizer.model or .gguf file
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "model/tokenizer.h"

namespace weightless::model {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

template <typename Function>
double Seconds(Function function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path, const std::string& bytes) {
  if (path.ends_with(".gguf")) return Tokenizer::FromGguf(bytes, path);
  if (path.ends_with(".model")) return Tokenizer::FromSentencePiece(bytes, "", path);
  return Tokenizer::FromTokenizerJson(bytes, path);
}

int Measure(const std::string& text, const std::string& path) {
  const std::string bytes = ReadFile(path);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer;
  const double load_s = Seconds([&] { tokenizer = Load(path, bytes); });
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::vector<int32_t> ids;
  const double first_s = Seconds([&] { ids = (*tokenizer)->Encode(text); });
  double best_s = first_s;
  for (int i = 0; i < 4; ++i) {
    best_s = std::min(best_s, Seconds([&] { ids = (*tokenizer)->Encode(text); }));
  }
  std::string decoded;
  const double decode_s = Seconds([&] { decoded = (*tokenizer)->Decode(ids, false); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf(
      "%s: load %.3f s, %zu tokens of %.2f MB, encode %.1f MB/s (first %.1f), decode %.1f MB/s\n",
      path.c_str(), load_s, ids.size(), megabytes, megabytes / best_s, megabytes / first_s,
      megabytes / decode_s);
  return 0;
}

}  // namespace
}  // namespace weightless::model

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TEXT_FILE TOKENIZER...\n");
    return 2;
  }
  const std::string text = weightless::model::ReadFile(argv[1]);
  int result = 0;
  for (int i = 2; i < argc; ++i) result |= weightless::model::Measure(text, argv[i]);
  return result;
}
