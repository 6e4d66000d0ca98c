#include "model/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/checkpoint_bytes.h"

namespace weightless::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(std::string_view file) {
  const auto header = GgufHeader::Parse(file, "m.gguf");
  EXPECT_TRUE(header.ok() || header.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(header.status().message());
}

TEST(GgufHeaderTest, ReadsEveryValueType) {
  GgufWriter writer;
  writer.AddRaw("u8", 0, Raw<uint8_t>(200));
  writer.AddRaw("i8", 1, Raw<int8_t>(-3));
  writer.AddRaw("u16", 2, Raw<uint16_t>(60000));
  writer.AddRaw("i16", 3, Raw<int16_t>(-300));
  writer.AddU32("u32", 4000000000);
  writer.AddRaw("i32", 5, Raw<int32_t>(-5));
  writer.AddF32("f32", 0.5f);
  writer.AddBool("bool", true);
  writer.AddString("string", "text");
  writer.AddU64("u64", 1);
  writer.AddU64("u64 beyond 63 bits", uint64_t{1} << 63);
  writer.AddRaw("i64", 11, Raw<int64_t>(-7));
  writer.AddRaw("f64", 12, Raw(2.25));
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(**header->GetInt("u8"), 200);
  EXPECT_EQ(**header->GetInt("i8"), -3);
  EXPECT_EQ(**header->GetInt("u16"), 60000);
  EXPECT_EQ(**header->GetInt("i16"), -300);
  EXPECT_EQ(**header->GetInt("u32"), 4000000000);
  EXPECT_EQ(**header->GetInt("i32"), -5);
  EXPECT_EQ(**header->GetInt("u64"), 1);
  EXPECT_EQ(**header->GetInt("i64"), -7);
  EXPECT_EQ(**header->GetFloat("f32"), 0.5);
  EXPECT_EQ(**header->GetFloat("f64"), 2.25);
  EXPECT_EQ(**header->GetFloat("i32"), -5);
  EXPECT_EQ(**header->GetFloat("u64 beyond 63 bits"), 0x1p63);
  EXPECT_EQ(**header->GetBool("bool"), true);
  EXPECT_EQ(**header->GetString("string"), "text");
}

TEST(GgufHeaderTest, ReadsArrays) {
  GgufWriter writer;
  writer.AddStrings("strings", {"a", "", "ccc"});
  writer.AddInts("ints", {-1, 2});
  writer.AddFloats("floats", {0.5f, -1000.0f});
  writer.AddBools("bools", {true, false});
  writer.AddRaw("u16s", 9, Raw<uint32_t>(2) + Raw<uint64_t>(1) + Raw<uint16_t>(9));
  writer.AddRaw("empty", 9, Raw<uint32_t>(8) + Raw<uint64_t>(0));
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(**header->GetArray<GgufStrings>("strings"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(**header->GetArray<GgufInts>("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(**header->GetArray<GgufFloats>("floats"), ElementsAre(0.5f, -1000.0f));
  EXPECT_THAT(**header->GetArray<GgufBools>("bools"), ElementsAre(true, false));
  EXPECT_THAT(**header->GetArray<GgufInts>("u16s"), ElementsAre(9));
  EXPECT_TRUE((*header->GetArray<GgufStrings>("empty"))->empty());
}

TEST(GgufHeaderTest, LookUpsTellAbsentFromWrongType) {
  GgufWriter writer;
  writer.AddU32("number", 1);
  writer.AddString("text", "1");
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->Find("x"), nullptr);
  EXPECT_FALSE(header->GetInt("x")->has_value());
  EXPECT_EQ(*header->GetArray<GgufStrings>("x"), nullptr);
  EXPECT_THAT(std::string(header->GetString("number").status().message()),
              HasSubstr("m.gguf: metadata \"number\" is of the wrong type, integer"));
  for (const absl::Status& status :
       {header->GetInt("text").status(), header->GetFloat("text").status(),
        header->GetBool("number").status(), header->GetArray<GgufInts>("number").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(GgufHeaderTest, ReadsTensorsAndPlacesTheData) {
  GgufWriter writer;
  writer.AddU32("general.alignment", 64);
  writer.AddTensorAt("a", {32, 4}, 8, 128);
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors().size(), 1u);
  const GgufTensorInfo& info = header->tensors()[0];
  EXPECT_EQ(info.name, "a");
  EXPECT_EQ(info.num_dims, 2);
  EXPECT_THAT(info.dims, ElementsAre(32, 4, 1, 1));
  EXPECT_EQ(info.type, 8u);
  EXPECT_EQ(info.offset, 128u);
  EXPECT_EQ(header->alignment(), 64u);
  EXPECT_EQ(header->data_offset() % 64, 0u);
  EXPECT_LT(header->data_offset() - header->size_bytes(), 64u);
}

TEST(GgufHeaderTest, TheHeaderAloneIsEnough) {
  GgufWriter writer = TinyGgufMetadata();
  AddTinyGgufTensors(writer);
  const std::string file = writer.File();
  const auto whole = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(whole.ok());
  const auto prefix = GgufHeader::Parse(std::string_view(file).substr(0, whole->size_bytes()), "m");
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  EXPECT_EQ(prefix->tensors().size(), whole->tensors().size());
}

TEST(GgufHeaderTest, BrokenHeadersAreRefusedWithTheReason) {
  const auto with = [](auto change) {
    GgufWriter writer;
    change(writer);
    return writer.File();
  };
  using W = GgufWriter&;
  const std::string huge = Raw(uint64_t{1} << 60);
  const struct {
    std::string file;
    const char* message;
  } kCases[] = {
      {"", "magic at byte 0 needs 4 bytes, the header has 0 left"},
      {with([](W w) { w.magic = "GGML"; }), "not a GGUF file"},
      {with([](W w) { w.version = 2; }), "GGUF version 2 is not 3"},
      {with([](W w) { w.version = 0x03000000; }), "is not 3"},
      {with([](W w) { w.num_tensors = 65537; }), "tensor count 65537 exceeds 65536"},
      {with([](W w) { w.num_keys = 4097; }), "metadata count 4097 exceeds 4096"},
      {with([](W w) { w.num_keys = 1; }),
       "metadata type at byte 32 needs 4 bytes, the header has 0 left"},
      {with([](W w) { w.AddU32("a", 1), w.AddU32("a", 2); }), "metadata \"a\" occurs twice"},
      {with([](W w) { w.AddRaw("a", 13, ""); }), "metadata \"a\" has value type 13, above 12"},
      {with([&](W w) { w.AddRaw("a", 8, huge); }),
       "metadata \"a\" of 1152921504606846976 bytes exceeds"},
      {with([](W w) { w.AddRaw("a", 8, Raw<uint64_t>(1000)); }), "needs 1000 bytes"},
      {with([](W w) { w.AddRaw("\x1b[2J", 8, Raw<uint64_t>(1000)); }),
       "metadata \"\\x1b[2J\" at byte"},
      {with([](W w) { w.AddU32(std::string(65536, 'k'), 1); }), "of 65536 bytes exceeds 65535"},
      {with([&](W w) { w.AddRaw("a", 9, Raw<uint32_t>(0) + huge); }), "elements exceeds the"},
      {with([&](W w) { w.AddRaw("a", 9, Raw<uint32_t>(8) + huge); }), "strings exceeds the"},
      {with([](W w) { w.AddRaw("a", 9, Raw<uint32_t>(9) + Raw<uint64_t>(0)); }), "nested arrays"},
      {with(
           [](W w) { w.AddRaw("a", 9, Raw<uint32_t>(10) + Raw<uint64_t>(1) + Raw(~uint64_t{0})); }),
       "beyond 63 bits"},
      {with([](W w) { w.AddTensorAt("t", {}, 0, 0); }), "\"t\" has 0 dimensions, not 1 to 4"},
      {with([](W w) {
         w.AddTensorAt("t", {1, 1, 1, 1, 1}, 0, 0);
       }),
       "has 5 dimensions"},
      {with([](W w) {
         w.AddTensorAt("t", {4, 0}, 0, 0);
       }),
       "dimension 1 is 0"},
      {with([](W w) {
         w.AddTensorAt("t", {1u << 30, 1u << 30}, 0, 0);
       }),
       "product at most"},
      {with([](W w) { w.AddTensorAt("t", {~uint64_t{0}}, 0, 0); }), "dimension 0 is"},
      {with([](W w) { w.AddTensorAt("t", {1}, 0, 0), w.AddTensorAt("t", {1}, 0, 0); }),
       "tensor \"t\" occurs twice"},
      {with([](W w) { w.AddU32("general.alignment", 0); }), "general.alignment 0"},
      {with([](W w) { w.AddU32("general.alignment", 24); }), "is not a power of two"},
      {with([](W w) { w.AddU32("general.alignment", 1u << 31); }), "general.alignment 2147483648"},
      {with([](W w) { w.AddString("general.alignment", "32"); }), "wrong type, string"},
  };
  for (const auto& test : kCases) EXPECT_THAT(Refusal(test.file), HasSubstr(test.message));
}

TEST(GgufHeaderTest, EveryTruncationIsRefused) {
  GgufWriter writer = TinyGgufMetadata();
  writer.AddStrings("tokenizer.ggml.tokens", {"a", "b"});
  AddTinyGgufTensors(writer);
  const std::string file = writer.File();
  const auto header = GgufHeader::Parse(file, "m.gguf");
  ASSERT_TRUE(header.ok());
  for (size_t size = 0; size < header->size_bytes(); ++size) {
    EXPECT_NE(Refusal(std::string_view(file).substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace weightless::model
