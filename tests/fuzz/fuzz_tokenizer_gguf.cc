// A tokenizer loaded from arbitrary bytes as GGUF metadata.
#include <cstdint>
#include <string_view>

#include "model/tokenizer.h"
#include "tests/fuzz/check_tokenizer.h"

using namespace weightless::model;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::FromGguf(bytes, "fuzz");
  if (tokenizer.ok()) CheckTokenizer(**tokenizer);
  return 0;
}
