// Closed forms against numbers worked out by hand on layers small enough to do so.

#include "planner/model/layer.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

// q is 8 wide, k and v 4 each.
constexpr LayerShape kGated = {.tokens = 4,
                               .hidden = 8,
                               .attention = AttentionKind::causal,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 2,
                               .rotary = true,
                               .ffn = 16,
                               .activation = Activation::swiglu,
                               .norm = NormKind::rms_norm};

constexpr LayerShape kBiased = {.tokens = 4,
                                .hidden = 8,
                                .attention = AttentionKind::bidirectional,
                                .heads = 2,
                                .kv_heads = 2,
                                .head_dim = 4,
                                .ffn = 32,
                                .qkv_bias = true,
                                .attention_out_bias = true,
                                .ffn_bias = true};

constexpr LayerShape kEmbedding = {
    .kind = LayerKind::embedding, .tokens = 4, .hidden = 8, .vocab = 10, .positions = 4};

constexpr LayerShape kPatches = {.kind = LayerKind::embedding,
                                 .tokens = 5,
                                 .hidden = 8,
                                 .positions = 5,
                                 .patch_inputs = 12,
                                 .class_token = true};

constexpr LayerShape kHead = {.kind = LayerKind::head,
                              .tokens = 4,
                              .hidden = 8,
                              .norm = NormKind::rms_norm,
                              .vocab = 10,
                              .final_norm = true};

constexpr LayerShape kClassifier = {.kind = LayerKind::head,
                                    .tokens = 4,
                                    .hidden = 8,
                                    .vocab = 10,
                                    .final_norm = true,
                                    .head_bias = true,
                                    .pooled = true};

constexpr LayerShape kMaskedHead = {.kind = LayerKind::head,
                                    .tokens = 4,
                                    .hidden = 8,
                                    .vocab = 10,
                                    .head_dense = 8,
                                    .head_bias = true,
                                    .tied = true};

constexpr LayerShape kMerge = {
    .kind = LayerKind::merge, .tokens = 4, .hidden = 8, .merge_outputs = 16};

template <class Change>
constexpr LayerShape with(LayerShape shape, Change change) {
  change(shape);
  return shape;
}

constexpr LayerShape kMixture = with(kGated, [](LayerShape& s) {
  s.experts = 4;
  s.experts_per_token = 2;
});
constexpr LayerShape kSharedMixture = with(kMixture, [](LayerShape& s) { s.shared_ffn = 16; });
constexpr LayerShape kCross = with(kGated, [](LayerShape& s) { s.cross_tokens = 3; });
constexpr LayerShape kLastEncoder = with(kGated, [](LayerShape& s) {
  s.final_norm = true;
  s.carried_tokens = 3;
});
constexpr LayerShape kTwoStreams = with(kEmbedding, [](LayerShape& s) {
  s.carried_tokens = 3;
  s.position_bias = 16;
  s.heads = 4;
});
constexpr LayerShape kOneToken = with(kClassifier, [](LayerShape& s) { s.class_token = true; });
constexpr LayerShape kHeadNorms = with(kGated, [](LayerShape& s) { s.qk_norm = true; });
constexpr LayerShape kWindowed = with(kGated, [](LayerShape& s) { s.window = 2; });
constexpr LayerShape kWideWindow = with(kGated, [](LayerShape& s) { s.window = 100; });
constexpr LayerShape kOpen =
    with(kGated, [](LayerShape& s) { s.attention = AttentionKind::bidirectional; });
constexpr LayerShape kSwin = with(kBiased, [](LayerShape& s) {
  s.attention = AttentionKind::window;
  s.window = 2;
  s.position_bias = 9;
});
constexpr LayerShape kTied = with(kHead, [](LayerShape& s) { s.tied = true; });
constexpr LayerShape kNormed = with(kEmbedding, [](LayerShape& s) { s.embedding_norm = true; });

struct ParameterCase {
  const char* fact;
  LayerShape layer;
  int tensor, experts, expected;
};

constexpr ParameterCase kParameterCases[] = {
    // 8·(8+4+4) + 8·8 attention, 3·8·16 feed-forward, two norms of 8.
    {"a gated block", kGated, 1, 1, 128 + 64 + 384 + 16},
    {"two ranks halve all but the norms", kGated, 2, 1, 64 + 32 + 192 + 16},
    {"four ranks each hold one of the two kv heads", kGated, 4, 1, 8 * (2 + 2 + 2) + 16 + 96 + 16},
    {"three ranks: the fullest has 2 heads, 1 kv head, 6 columns", kGated, 3, 1,
     8 * (4 + 2 + 2) + 32 + 3 * 8 * 6 + 16},
    {"head norms add two vectors of a head", kHeadNorms, 1, 1, 592 + 4},
    {"cross-attention adds a norm and four matrices", kCross, 1, 1, 592 + 192 + 8},
    {"the norm behind an encoder", kLastEncoder, 1, 1, 592 + 8},
    {"tables that blocks share are whole", kTwoStreams, 4, 1, 3 * 8 + 32 + 16 * 4},
    {"biases and layer norms", kBiased, 1, 1, (192 + 24) + (64 + 8) + (512 + 32 + 8) + 32},
    {"row-parallel biases are on every rank", kBiased, 2, 1,
     (96 + 12) + (32 + 8) + (256 + 16 + 8) + 32},
    {"a relative-position table per head", kSwin, 1, 1, 872 + 18},
    {"the table is cut with its heads", kSwin, 2, 1, 460 + 9},
    {"four experts and a router", kMixture, 1, 1, 192 + 16 + 32 + 4 * 384},
    {"experts are cut by their own degree", kMixture, 1, 2, 192 + 16 + 32 + 2 * 384},
    {"expert and tensor degrees multiply", kMixture, 2, 4, 96 + 16 + 32 + 192},
    {"a shared expert is on every expert rank", kSharedMixture, 1, 4, 192 + 16 + 32 + 384 + 384},
    {"an embedding with positions", kEmbedding, 1, 1, 80 + 32},
    {"vocabulary rows round up, positions stay whole", kEmbedding, 4, 1, 3 * 8 + 32},
    {"an embedding norm has weight and bias", kNormed, 1, 1, 112 + 16},
    {"patches: matrix, bias, class token, positions", kPatches, 1, 1, (12 + 1 + 1 + 5) * 8},
    {"a head with its norm", kHead, 1, 1, 80 + 8},
    {"a head's rows round up", kHead, 4, 1, 3 * 8 + 8},
    {"a tied head has only its norm", kTied, 1, 1, 8},
    {"a classifier", kClassifier, 1, 1, 80 + 10 + 16},
    {"BERT's head: dense, norm, output bias", kMaskedHead, 1, 1, 72 + 16 + 10},
    {"merging: norm of four tokens, matrix", kMerge, 1, 1, 64 + 512},
    {"merging cuts its columns", kMerge, 2, 1, 64 + 256},
};

TEST(LayerParameters, FollowTheShapes) {
  for (const ParameterCase& c : kParameterCases)
    EXPECT_EQ(parameters_per_rank(c.layer, c.tensor, c.experts), c.expected) << c.fact;
}

TEST(LayerParameters, OfOneRankAreTheWholeLayer) {
  for (const ParameterCase& c : kParameterCases)
    EXPECT_EQ(parameters(c.layer), parameters_per_rank(c.layer, 1, 1)) << c.fact;
}

TEST(LayerParameters, OfExpertsAreCountedApart) {
  EXPECT_EQ(expert_parameters_per_rank(kGated, 2, 2), 0);
  EXPECT_EQ(expert_parameters_per_rank(kMixture, 1, 1), 4 * 384);
  EXPECT_EQ(expert_parameters_per_rank(kMixture, 2, 2), 2 * 192);
  EXPECT_EQ(expert_parameters_per_rank(kSharedMixture, 1, 1), 4 * 384);
}

struct FlopsCase {
  const char* fact;
  LayerShape layer;
  double matmul, attention;
};

constexpr FlopsCase kFlopsCases[] = {
    // 2·4·8·16 qkv + 2·4·8·8 output + 2·4·8·48 feed-forward; 8 pairs · 8 wide · 4.
    {"causal attention scores half of the square", kGated, 1024 + 512 + 3072, 256},
    {"bidirectional attention scores all of it", kOpen, 4608, 512},
    {"a causal window of 2 scores 6 pairs", kWindowed, 4608, 192},
    {"a window beyond the sequence changes nothing", kWideWindow, 4608, 256},
    {"windows of 2 tokens score 8 pairs", kSwin, 1536 + 512 + 4096, 256},
    {"cross-attention projects both sides", kCross, 4608 + 512 + 512 + 384, 256 + 384},
    {"two experts a token and a router", kMixture, 1536 + 2 * 3072 + 256, 256},
    {"a shared expert is one more", kSharedMixture, 1536 + 3 * 3072 + 256, 256},
    {"looking up is free", kEmbedding, 0, 0},
    {"the class token is not projected", kPatches, 2 * 4 * 12 * 8, 0},
    {"a head, tied or not", kTied, 640, 0},
    {"a classifier predicts once", kClassifier, 160, 0},
    {"BERT's transform comes first", kMaskedHead, 512 + 640, 0},
    {"merging: one token of 32 to 16", kMerge, 1024, 0},
};

TEST(LayerFlops, FollowTheShapes) {
  for (const FlopsCase& c : kFlopsCases) {
    const LayerFlops flops = forward_flops(c.layer);
    EXPECT_EQ(flops.matmul.value(), c.matmul) << c.fact;
    EXPECT_EQ(flops.attention.value(), c.attention) << c.fact;
    EXPECT_EQ(flops.total().value(), c.matmul + c.attention) << c.fact;
  }
}

TEST(LayerFlops, OfRecomputation) {
  EXPECT_EQ(recompute_flops(kGated, Recompute::none).total().value(), 0);
  EXPECT_EQ(recompute_flops(kGated, Recompute::selective).matmul.value(), 0);
  EXPECT_EQ(recompute_flops(kGated, Recompute::selective).attention.value(), 256);
  EXPECT_EQ(recompute_flops(kGated, Recompute::full).total().value(), 4608 + 256);
  EXPECT_EQ(recompute_flops(kMerge, Recompute::full).total().value(), 0) << "a norm alone";
  EXPECT_EQ(recompute_flops(kHead, Recompute::full).total().value(), 0);
}

struct MemoryCase {
  const char* fact;
  LayerShape layer;
  int none, selective, full;
};

// bf16. Per token of the gated block: x 8, qkv 16, attention 8, residual 8, pre-activations 32 = 72
// elements; 4 log-sum-exp and 2 statistics in fp32. Norms and activation are made again.
constexpr MemoryCase kSavedCases[] = {
    {"a gated block", kGated, 4 * (144 + 16 + 8), 4 * (128 + 8), 4 * 16},
    // 80 elements; 2 log-sum-exp, 4 statistics; selective drops 8 elements.
    {"a layer norm keeps two statistics", kBiased, 4 * (160 + 8 + 16), 4 * (144 + 16), 4 * 16},
    {"head norms keep q and k ahead of them", kHeadNorms, 672 + 4 * 48, 544 + 4 * 48, 64},
    // q 8, output 8, residual 8 = 48 bytes, 16 + 4 in fp32; k and v of 3 tokens 48 bytes.
    {"cross-attention", kCross, 672 + 4 * 68 + 48, 544 + 4 * 36 + 48, 64},
    {"the norm behind an encoder keeps input and statistics", kLastEncoder, 672 + 4 * 20,
     544 + 4 * 20, 64},
    // Norm 8, permuted 16, pre-activations 64, activation 32, outputs 16 elements; 4 probabilities,
    // 2 choices of 8 bytes.
    {"a mixture keeps each copy", kMixture, 4 * (352 + 16 + 8 + 32), 4 * (272 + 8 + 32), 64},
    {"an embedding keeps ids", kEmbedding, 32, 32, 32},
    {"an embedding of two streams keeps the ids of both", kTwoStreams, 56, 56, 56},
    {"its norm keeps input and statistics", kNormed, 32 + 4 * 24, 128, 128},
    {"patches are kept as numbers, the class token's as an empty one", kPatches, 5 * 24, 120, 120},
    {"a head keeps input, norm and statistics", kHead, 4 * (16 + 16 + 4), 144, 144},
    {"a classifier keeps its norm's input and a mean's gradient", kClassifier, 4 * (16 + 8) + 16,
     112, 112},
    {"a class token is kept alone, with its gradient", kOneToken, 2 * 16 + 8, 40, 40},
    {"BERT's transform", kMaskedHead, 4 * 16 + 4 * (48 + 8), 288, 288},
    {"merging keeps its norm's input and statistics", kMerge, 64 + 8, 72, 64},
};

TEST(SavedBytes, FollowTheOperators) {
  for (const MemoryCase& c : kSavedCases) {
    EXPECT_EQ(saved_bytes(c.layer, Recompute::none, Precision::bf16).value(), c.none) << c.fact;
    EXPECT_EQ(saved_bytes(c.layer, Recompute::selective, Precision::bf16).value(), c.selective)
        << c.fact;
    EXPECT_EQ(saved_bytes(c.layer, Recompute::full, Precision::bf16).value(), c.full) << c.fact;
  }
}

TEST(SavedBytes, DoubleInFp32ButForStatistics) {
  EXPECT_EQ(saved_bytes(kGated, Recompute::none, Precision::fp32).value(), 4 * (288 + 16 + 8));
  EXPECT_EQ(saved_bytes(kGated, Recompute::full, Precision::fp32).value(), 4 * 32);
}

// Two devices of either kind of tensor parallelism, and a ring of two.
TEST(SavedBytes, OfADeviceAreItsShare) {
  const auto saved = [](const LayerShape& layer, const Split& split) {
    return saved_bytes(layer, Recompute::none, Precision::bf16, split).value();
  };
  constexpr Split kMegatron{.tensor = 2}, kRing{.context = 2};
  constexpr Split kUlysses{.tensor = 2, .matrices = false};
  for (const LayerShape& layer : {kGated, kBiased, kMixture, kHead}) {
    EXPECT_EQ(saved(layer, kMegatron), saved(layer, {}) / 2);
    EXPECT_EQ(saved(layer, kUlysses), saved(layer, {}) / 2);
    EXPECT_EQ(saved(layer, kRing), saved(layer, {}) / 2);
  }
  EXPECT_EQ(saved(kEmbedding, kMegatron), 32) << "rows of the table are asked for every token";
  EXPECT_EQ(saved(kEmbedding, kUlysses), 16);
  EXPECT_EQ(saved(kEmbedding, {.context = 2, .tensor = 2}), 16);
}

TEST(SavedBytes, OfAKeyValueHeadAreWithEveryDeviceThatUsesIt) {
  LayerShape one_kv = kGated;
  one_kv.kv_heads = 1;
  const auto saved = [&](const Split& split) {
    return saved_bytes(one_kv, Recompute::none, Precision::bf16, split).value();
  };
  // Four tokens' keys and values of one head, which halves of a whole would count half.
  const std::int64_t shared = std::int64_t{4} * 2 * one_kv.head_dim * 2;
  EXPECT_EQ(saved({.tensor = 2}), (saved({}) - shared) / 2 + shared);
}

TEST(LargestMatrix, IsTheWidestProductOfABlockAndTheRowsOfAHead) {
  EXPECT_EQ(largest_matrix_per_rank(kGated, 1), 8 * 2 * 16) << "gate and up are one";
  EXPECT_EQ(largest_matrix_per_rank(kGated, 2), 8 * 2 * 8);
  LayerShape narrow = kGated;
  narrow.ffn = 4;
  EXPECT_EQ(largest_matrix_per_rank(narrow, 1), 8 * (4 + 2 + 2) * 2) << "q, k and v";
  EXPECT_EQ(largest_matrix_per_rank(kHead, 4), 3 * kHead.hidden) << "padded rows";
}

// One token of 32 ahead of the matrix, and the gradient of 16 behind it.
TEST(DeferredBytes, OfAMerge) {
  EXPECT_EQ(deferred_bytes(kMerge, Precision::bf16).value(), (32 + 16) * 2);
}

constexpr MemoryCase kTransientCases[] = {
    {"recomputation brings back what was dropped", kGated, 512, 512 + 672 - 544, 512 + 672 - 64},
    {"gradients of every copy of a mixture", kMixture, 1152, 1152 + 1632 - 1248, 1152 + 1632 - 64},
    {"a plain embedding has none", kEmbedding, 0, 0, 0},
    {"logits, once", kHead, 4 * 10 * 2, 80, 80},
    {"a classifier's are small", kClassifier, 20, 20, 20},
    {"merging", kMerge, 128, 128, 128 + 72 - 64},
};

TEST(TransientBytes, AreTheWorstMoment) {
  for (const MemoryCase& c : kTransientCases) {
    EXPECT_EQ(transient_bytes(c.layer, Recompute::none, Precision::bf16).value(), c.none) << c.fact;
    EXPECT_EQ(transient_bytes(c.layer, Recompute::selective, Precision::bf16).value(), c.selective)
        << c.fact;
    EXPECT_EQ(transient_bytes(c.layer, Recompute::full, Precision::bf16).value(), c.full) << c.fact;
  }
}

struct MovedCase {
  const char* fact;
  LayerShape layer;
  int traffic, boundary;
};

constexpr MovedCase kMovedCases[] = {
    // Two norms and residuals 2·5·8, rotary 2·12, activation 3·16 elements.
    {"a gated block", kGated, 4 * 152 * 2, 64},
    {"no rotary, no gate", kBiased, 4 * (80 + 64) * 2, 64},
    {"cross-attention hands on the encoder's tokens", kCross, 4 * (152 + 40) * 2, 64 + 3 * 16},
    {"an encoder hands on the decoder's tokens", kLastEncoder, 4 * (152 + 16) * 2, 64 + 3 * 16},
    {"an embedding of two streams makes both", kTwoStreams, 7 * 24 * 2, 64 + 3 * 16},
    // Six rows of permutation, twice the activation, the router's softmax in fp32.
    {"a mixture permutes", kMixture, 4 * ((152 + 48 + 48) * 2 + 32), 64},
    {"an embedding reads two rows and writes one", kEmbedding, 4 * 24 * 2, 64},
    {"a head reads logits and writes their softmax", kHead, 240 + 4 * 16 * 2, 0},
    {"a merge hands on a quarter of the tokens", kMerge, 4 * 4 * 8 * 2, 16 * 2},
};

TEST(MovedBytes, FollowTheOperators) {
  for (const MovedCase& c : kMovedCases) {
    EXPECT_EQ(forward_traffic(c.layer, Precision::bf16).value(), c.traffic) << c.fact;
    EXPECT_EQ(boundary_bytes(c.layer, Precision::bf16).value(), c.boundary) << c.fact;
  }
}

TEST(Logits, AreMadeInAsFewEqualPartsAsFit) {
  constexpr std::int64_t kRow = 64 << 10;  // bytes
  struct Case {
    const char* fact;
    std::int64_t rows, at_once;
  };
  const Case cases[] = {
      {"few are made at once", 4096, 4096},      {"more than few are halved", 8192, 4096},
      {"a gigabyte is halved too", 16384, 8192}, {"parts are equal", 20480, 10240},
      {"as many as fit", 40960, 14336},          {"whole steps", 9000, 5120}};
  for (const Case& c : cases) EXPECT_EQ(rows_of_logits(c.rows, kRow), c.at_once) << c.fact;
  EXPECT_EQ(rows_of_logits(5000, std::int64_t{1} << 40), kRowsStep) << "one step at least";
}

TEST(LayerNames, AreThoseOfTheFiles) {
  EXPECT_EQ(name_of(LayerKind::embedding), "embedding");
  EXPECT_EQ(name_of(LayerKind::block), "block");
  EXPECT_EQ(name_of(LayerKind::merge), "merge");
  EXPECT_EQ(name_of(LayerKind::head), "head");
  EXPECT_EQ(name_of(Recompute::selective), "selective");
  EXPECT_EQ(name_of(Precision::bf16), "bf16");
}

}  // namespace
}  // namespace braid
