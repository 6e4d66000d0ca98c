// The main() of a fuzz target where libFuzzer is not available: first every file of the given
// folders as it is, then mutations of them. No coverage feedback, but the same sanitizers, and the
// same arguments as libFuzzer where both have them:
//   -runs=N  -max_total_time=SECONDS  -seed=N  -max_len=BYTES  [FILE or FOLDER ...]
// Every input depends on the seed and its number alone. The input that crashes, or takes longer
// than ten seconds, is written to crash-input in the working folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;
using SteadyClock = std::chrono::steady_clock;

struct Options {
  uint64_t runs = std::numeric_limits<uint64_t>::max();
  uint64_t seconds = 1 << 30;
  uint64_t seed = 1;
  uint64_t max_len = 65536;
  std::vector<std::string> paths;
};

constexpr auto kSlow = std::chrono::seconds(10);
const Input* current = nullptr;  // read by the handlers below only

void SaveCurrent() {
  if (current == nullptr) return;
  const int file = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  if (write(file, current->data(), current->size()) >= 0) {
    static constexpr std::string_view kNote = "the input is in crash-input\n";
    if (write(STDERR_FILENO, kNote.data(), kNote.size()) < 0) std::_Exit(2);
  }
  close(file);
}

void OnAbort(int) {
  SaveCurrent();
  std::_Exit(1);
}

void RunOne(const Input& input) {
  current = &input;
  const auto start = SteadyClock::now();
  LLVMFuzzerTestOneInput(input.data(), input.size());
  if (SteadyClock::now() - start > kSlow) {
    std::fprintf(stderr, "an input of %zu bytes took more than 10 seconds\n", input.size());
    std::abort();
  }
  current = nullptr;
}

bool ParseOptions(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.empty() || argument[0] != '-') {
      options.paths.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    uint64_t* target = nullptr;
    const std::string name = argument.substr(0, equals);
    if (name == "-runs") target = &options.runs;
    if (name == "-max_total_time") target = &options.seconds;
    if (name == "-seed") target = &options.seed;
    if (name == "-max_len") target = &options.max_len;
    if (target == nullptr || equals == std::string::npos) {
      std::fprintf(stderr, "unknown argument %s\n", argument.c_str());
      return false;
    }
    *target = std::strtoull(argument.c_str() + equals + 1, nullptr, 10);
  }
  return true;
}

Input ReadInput(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

std::vector<Input> ReadCorpus(const Options& options) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : options.paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());  // the order of a folder is not defined
  std::vector<Input> corpus;
  for (const auto& file : files) corpus.push_back(ReadInput(file));
  corpus.emplace_back();  // nothing at all
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, size_t max_len, uint64_t seed)
      : corpus_(corpus), max_len_(max_len), random_(seed) {}

  Input Next() {
    Input input = corpus_[Below(corpus_.size())];
    if (input.size() > max_len_) input.resize(max_len_);
    const size_t changes = 1 + Below(6);
    for (size_t i = 0; i < changes; ++i) Change(input);
    if (input.size() > max_len_) input.resize(max_len_);
    return input;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }

  void Change(Input& input) {
    if (input.empty()) {
      input.resize(1 + Below(16));
      for (uint8_t& byte : input) byte = static_cast<uint8_t>(random_());
      return;
    }
    const size_t at = Below(input.size());
    const auto position = input.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t length = std::min(1 + Below(32), input.size() - at);
    switch (Below(8)) {
      case 0:
        input[at] ^= static_cast<uint8_t>(1u << Below(8));
        break;
      case 1:
        input[at] = static_cast<uint8_t>(random_());
        break;
      case 2:
        OverwriteNumber(input, at);
        break;
      case 3:
        input.resize(at);
        break;
      case 4:
        input.erase(position, position + static_cast<std::ptrdiff_t>(length));
        break;
      case 5: {
        const Input copy(position, position + static_cast<std::ptrdiff_t>(length));
        const auto target = input.begin() + static_cast<std::ptrdiff_t>(Below(input.size()));
        input.insert(target, copy.begin(), copy.end());
        break;
      }
      case 6: {
        static constexpr std::string_view kBytes = "\0\xff{}[]\",:\r\n \x80<>-.0e";
        input.insert(position, static_cast<uint8_t>(kBytes[Below(kBytes.size())]));
        break;
      }
      default: {  // the tail of another input
        const Input& other = corpus_[Below(corpus_.size())];
        const size_t from = Below(other.size());
        input.resize(at);
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }

  // A number at the edge of some type, or near to the one there.
  void OverwriteNumber(Input& input, size_t at) {
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0xffff,
                                          0x7fffffff,
                                          1 << 20,
                                          0xffffffff,
                                          0x7fffffffffffffff,
                                          0xffffffffffffffff};
    const size_t width = std::min(size_t{1} << Below(4), input.size() - at);
    uint64_t value = 0;
    std::memcpy(&value, input.data() + at, width);
    value = Below(2) == 0 ? kEdges[Below(std::size(kEdges))] : value + Below(9) - 4;
    std::memcpy(input.data() + at, &value, width);
  }

  const std::vector<Input>& corpus_;
  const size_t max_len_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!ParseOptions(argc, argv, options)) return 2;
  std::signal(SIGABRT, OnAbort);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(SaveCurrent);
#endif
  const std::vector<Input> corpus = ReadCorpus(options);
  for (const Input& input : corpus) RunOne(input);
  const auto start = SteadyClock::now();
  uint64_t run = 0;
  for (; run < options.runs; ++run) {
    if (SteadyClock::now() - start >= std::chrono::seconds(options.seconds)) break;
    RunOne(Mutator(corpus, options.max_len, options.seed * 1000003 + run).Next());
  }
  std::printf("%zu inputs and %llu mutations, no failure\n", corpus.size(),
              static_cast<unsigned long long>(run));
  return 0;
}
