// Makes the dataset of a run, with the best token counts that can be had.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/config.h"
#include "loadtest/dataset.h"
#include "loadtest/server_api.h"
#include "loadtest/trace.h"

namespace weightless::loadtest {

struct PromptSource {
  std::unique_ptr<Dataset> dataset;
  std::vector<TraceEntry> trace;  // of --trace; the dataset refers to it
  std::string description;        // for the reports: what is sent, and who counted its tokens
};

// `target` counts tokens unless --tokenizer names another server or "words". A server without
// /tokenize is no error unless it was named: one token for each word is assumed then, and
// described.
absl::StatusOr<std::unique_ptr<PromptSource>> MakePrompts(const Config& config, ServerApi& target,
                                                          const std::string& model);

}  // namespace weightless::loadtest
