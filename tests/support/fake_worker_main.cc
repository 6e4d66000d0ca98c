// fake-worker: a worker without a model, for measuring and testing a router from outside. Prints
// `listening on PORT` when it is ready.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "model/tokenizer.h"
#include "tests/support/fake_worker_server.h"

namespace {

using weightless::testing::FakeWorkerOptions;
using weightless::testing::FakeWorkerServer;

struct Flags {
  std::string model;
  std::string address = "127.0.0.1:0";
  int num_slots = 64;
  int max_context = 4096;
  int max_step_tokens = 512;
  int num_full_blocks = 4096;
  int num_sliding_blocks = 1024;
  int sliding_window = 512;
  int64_t step_us = 0;
  uint64_t crash_at_step = 0;
  int stop_one_in = 0;
  bool check = false;
};

void Define(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model, "folder with the tokenizer's files")->required();
  app.add_option("--address", flags.address, "where to listen; port 0: any");
  app.add_option("--slots", flags.num_slots);
  app.add_option("--max-context", flags.max_context);
  app.add_option("--max-step-tokens", flags.max_step_tokens);
  app.add_option("--full-blocks", flags.num_full_blocks);
  app.add_option("--sliding-blocks", flags.num_sliding_blocks, "0: no sliding layers");
  app.add_option("--sliding-window", flags.sliding_window);
  app.add_option("--step-us", flags.step_us, "time of a step, microseconds");
  app.add_option("--crash-at-step", flags.crash_at_step, "0: never");
  app.add_option("--stop-one-in", flags.stop_one_in, "about one token in so many stops; 0: none");
  app.add_flag("--check", flags.check, "look at block contents; slow");
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "fake-worker: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("A worker without a model");
  Define(app, flags);
  CLI11_PARSE(app, argc, argv);

  auto files = weightless::testing::ReadModelFiles(flags.model);
  if (!files.ok()) return Fail(files.status());
  auto tokenizer = weightless::model::Tokenizer::FromModelFiles(*files);
  if (!tokenizer.ok()) return Fail(tokenizer.status());

  FakeWorkerOptions options;
  options.files = *std::move(files);
  options.address = flags.address;
  options.model.vocab_size = (*tokenizer)->vocab_size();
  options.model.first_token = options.model.vocab_size / 2;  // plain words
  options.model.eos_token = std::max(0, (*tokenizer)->FindToken("<eos>"));
  options.model.stop_one_in = flags.stop_one_in;
  options.model.check_blocks = flags.check;
  options.step_time = absl::Microseconds(flags.step_us);
  options.on_step = [&flags](uint64_t step) {
    if (step == flags.crash_at_step) _exit(1);
  };
  weightless::proto::Geometry& geometry = options.geometry;
  geometry.set_block_size(64);
  geometry.set_num_full_blocks(static_cast<uint32_t>(flags.num_full_blocks));
  geometry.set_num_sliding_blocks(static_cast<uint32_t>(flags.num_sliding_blocks));
  geometry.set_sliding_window(static_cast<uint32_t>(flags.sliding_window));
  geometry.set_num_slots(static_cast<uint32_t>(flags.num_slots));
  geometry.set_max_context(static_cast<uint32_t>(flags.max_context));
  geometry.set_max_step_tokens(static_cast<uint32_t>(flags.max_step_tokens));

  auto server = FakeWorkerServer::Start(options);
  if (!server.ok()) return Fail(server.status());
  std::printf("listening on %d\n", (*server)->port());
  std::fflush(stdout);
  (*server)->Wait();
  return 0;
}
