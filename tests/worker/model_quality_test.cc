// The tiny model in bfloat16 knows what it was trained on, as well as the published run of it does.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/json.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "tests/worker/test_engine.h"
#include "worker/local_runner.h"

namespace weightless::worker {
namespace {

constexpr size_t kNumConversations = 2000;
constexpr size_t kNumHeldOutLines = 1500;

const std::string kRoot = WEIGHTLESS_SOURCE_DIR "/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(kRoot + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first lines of an xz file, by the xz program.
std::vector<std::string> ReadXzLines(const std::string& path, size_t max_lines) {
  FILE* pipe = popen(("xz -dc '" + kRoot + path + "'").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), count);
  }
  pclose(pipe);
  std::stringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; lines.size() < max_lines && std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::unique_ptr<model::Tokenizer> TinyTokenizer() {
  auto tokenizer = model::Tokenizer::FromTokenizerJson(
      ReadFile("models/tiny-gemma3/tokenizer.json"), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::unique_ptr<Engine> WideEngine() {
  return MakeTestEngine({.dtype = kernels::DType::kBF16,
                         .engine = {.num_slots = 128,
                                    .max_step_tokens = 1024,
                                    .num_full_blocks = 512,
                                    .num_sliding_blocks = 512}});
}

double GoldenNumber(const char* name) {
  return ParseJson(ReadFile("tests/golden/tiny-gemma3-golden.json"))->at(name).to_number<double>();
}

// Runs all sequences, as many at a time as there is room for; `on_result` gets what each slot gave
// together with the sequence's index.
void RunAll(Engine& engine, std::vector<LocalSequence> sequences,
            const std::function<void(size_t, const proto::SlotResult&)>& on_result) {
  LocalRunner runner(engine);
  std::map<uint32_t, size_t> index_of_slot;
  size_t next = 0;
  while (next < sequences.size() || !runner.idle()) {
    while (next < sequences.size() &&
           runner.HasRoomFor(static_cast<int>(sequences[next].tokens.size()) +
                             sequences[next].max_tokens)) {
      const auto slot = runner.Add(std::move(sequences[next]));
      ASSERT_TRUE(slot.ok()) << slot.status();
      index_of_slot[static_cast<uint32_t>(*slot)] = next++;
    }
    const auto result = runner.Step();
    ASSERT_TRUE(result.ok()) << result.status();
    for (const auto& slot : result->slots()) on_result(index_of_slot.at(slot.slot()), slot);
  }
}

TEST(ModelQualityTest, RecallsItsTrainingConversations) {
  const auto engine = WideEngine();
  const auto tokenizer = TinyTokenizer();
  std::vector<LocalSequence> sequences;
  std::vector<std::string> answers;
  for (const std::string& line :
       ReadXzLines("tests/golden/tiny-chat.jsonl.xz", kNumConversations)) {
    const auto json = ParseJson(line);
    ASSERT_TRUE(json.ok()) << json.status();
    const auto& turns = json->at("turns").as_array();
    const std::string question(turns.at(0).at(1).as_string());
    answers.emplace_back(turns.at(1).at(1).as_string());
    const auto pieces = model::RenderGemma3Chat({{.role = "user", .parts = {question}}}, {});
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    LocalSequence sequence{.tokens = tokenizer->Encode(*pieces), .max_tokens = 100};
    *sequence.sampling.mutable_stop_token_ids() = engine->description().model().eos_token_ids();
    sequences.push_back(std::move(sequence));
  }
  ASSERT_EQ(sequences.size(), kNumConversations);

  std::vector<std::vector<int32_t>> outputs(sequences.size());
  RunAll(*engine, std::move(sequences), [&](size_t index, const proto::SlotResult& result) {
    outputs[index].push_back(result.token());
  });
  size_t num_equal = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    num_equal += tokenizer->Decode(outputs[i], true) == answers[i] ? 1 : 0;
  }
  const double recall = static_cast<double>(num_equal) / static_cast<double>(outputs.size());
  std::printf("recall %.4f, published %.4f\n", recall, GoldenNumber("recall_top2000"));
  EXPECT_GE(recall, 0.995);
}

TEST(ModelQualityTest, HeldOutPerplexityIsThePublishedOne) {
  const auto engine = WideEngine();
  const auto tokenizer = TinyTokenizer();
  std::vector<LocalSequence> sequences;
  std::stringstream text(ReadFile("tests/golden/tiny-heldout.txt"));
  for (std::string line; sequences.size() < kNumHeldOutLines && std::getline(text, line);) {
    LocalSequence sequence{.tokens = {tokenizer->bos_id()}, .prompt_logprobs = 0};
    for (const int32_t token : tokenizer->Encode(line)) sequence.tokens.push_back(token);
    sequence.tokens.push_back(tokenizer->FindToken("<eos>"));
    sequences.push_back(std::move(sequence));
  }
  ASSERT_EQ(sequences.size(), kNumHeldOutLines);

  double sum = 0;
  size_t count = 0;
  RunAll(*engine, std::move(sequences), [&](size_t, const proto::SlotResult& result) {
    for (const proto::Logprobs& entry : result.prompt_logprobs()) {
      sum += static_cast<double>(entry.logprob());
      ++count;
    }
  });
  const double perplexity = std::exp(-sum / static_cast<double>(count));
  const double published = GoldenNumber("heldout_ppl_bf16");
  std::printf("perplexity %.5f, published %.5f\n", perplexity, published);
  EXPECT_NEAR(perplexity, published, 0.005 * published);
}

}  // namespace
}  // namespace weightless::worker
