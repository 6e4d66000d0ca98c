// dump_logits MODEL IDS.json OUT.f32 [float32|bfloat16]
//
// Runs each token sequence of IDS.json (a list of lists) through the engine and writes the logits
// of every position as float32 rows [vocab_size], in order: what tests/parity/compare_logits.py
// holds against another implementation.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "common/json.h"
#include "worker/config.h"
#include "worker/engine.h"
#include "worker/local_runner.h"

namespace weightless {
namespace {

absl::Status Dump(const std::string& model, const std::string& ids_path,
                  const std::string& out_path, const std::string& dtype) {
  std::ifstream ids_file(ids_path);
  std::stringstream text;
  text << ids_file.rdbuf();
  ASSIGN_OR_RETURN(const boost::json::value json, ParseJson(text.str()));
  const auto sequences = boost::json::value_to<std::vector<std::vector<int32_t>>>(json);

  ASSIGN_OR_RETURN(const auto checkpoint, model::Checkpoint::Open(model));
  worker::WorkerConfig config;
  config.model = model;
  config.dtype = dtype;
  ASSIGN_OR_RETURN(auto backend, worker::MakeBackend(config));
  std::cerr << "numerics: " << backend->numerics() << "\n";
  ASSIGN_OR_RETURN(const auto engine, worker::Engine::Create(*checkpoint, std::move(backend),
                                                             {.max_length = 2048, .num_slots = 1}));
  std::ofstream out(out_path, std::ios::binary);
  size_t first_row = 0;
  for (const std::vector<int32_t>& tokens : sequences) {
    // The last position, which draws a token, is seen before others of its step.
    std::vector<bool> seen(tokens.size());
    engine->set_logits_observer([&](int, int position, std::span<const float> logits) {
      const auto row = static_cast<size_t>(position);
      CHECK(row < seen.size() && !seen[row]);
      seen[row] = true;
      out.seekp(static_cast<std::streamoff>((first_row + row) * logits.size_bytes()));
      out.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size_bytes()));
      return absl::OkStatus();
    });
    worker::LocalRunner runner(*engine);
    RETURN_IF_ERROR(
        runner.Add({.tokens = tokens, .max_tokens = 1, .sampling = {}, .prompt_logprobs = 0})
            .status());
    while (!runner.idle()) RETURN_IF_ERROR(runner.Step().status());
    CHECK(std::count(seen.begin(), seen.end(), true) == static_cast<std::ptrdiff_t>(tokens.size()));
    first_row += tokens.size();
  }
  return out ? absl::OkStatus() : absl::DataLossError("cannot write " + out_path);
}

}  // namespace
}  // namespace weightless

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: dump_logits MODEL IDS.json OUT.f32 [float32|bfloat16]\n";
    return 2;
  }
  const absl::Status status =
      weightless::Dump(argv[1], argv[2], argv[3], argc > 4 ? argv[4] : "float32");
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
