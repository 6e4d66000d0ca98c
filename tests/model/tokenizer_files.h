// The tokenizers in the repository, for tests: read, unpacked, loaded.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "model/tokenizer.h"

namespace weightless::model {

inline std::string SourcePath(const std::string& path) {
  return std::string(WEIGHTLESS_SOURCE_DIR "/") + path;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The contents of an .xz file; xz-utils unpacks it.
inline std::string ReadXz(const std::string& path) {
  std::FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  EXPECT_NE(pipe, nullptr) << path;
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), n);
  }
  EXPECT_EQ(pclose(pipe), 0) << path;
  return text;
}

inline std::unique_ptr<Tokenizer> Loaded(absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer) {
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

inline std::unique_ptr<Tokenizer> TinyFromJson() {
  return Loaded(Tokenizer::FromTokenizerJson(
      ReadFile(SourcePath("models/tiny-gemma3/tokenizer.json")), "tokenizer.json"));
}

inline std::unique_ptr<Tokenizer> TinyFromSentencePiece() {
  return Loaded(Tokenizer::FromSentencePiece(
      ReadFile(SourcePath("models/tiny-gemma3/tokenizer.model")),
      ReadFile(SourcePath("models/tiny-gemma3/tokenizer_config.json")), "tokenizer.model"));
}

inline std::unique_ptr<Tokenizer> TinyFromGguf() {
  return Loaded(Tokenizer::FromGguf(ReadFile(SourcePath("models/tiny-gemma3-bf16.gguf")),
                                    "tiny-gemma3-bf16.gguf"));
}

// The published Gemma 3 tokenizer, 262,145 ids.
inline std::string Gemma3Json() {
  return ReadXz(SourcePath("tests/golden/gemma3-tokenizer/tokenizer.json.xz"));
}

inline std::unique_ptr<Tokenizer> Gemma3FromJson() {
  return Loaded(Tokenizer::FromTokenizerJson(Gemma3Json(), "tokenizer.json"));
}

}  // namespace weightless::model
