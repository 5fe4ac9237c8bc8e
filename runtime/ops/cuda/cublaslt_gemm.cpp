#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "runtime/ops/cuda/gemm.h"

namespace braid::ops::kernels {

namespace {

template <auto kDestroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    kDestroy(handle);
  }
};
template <class Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<kDestroy>>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Matrix = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Thrown and caught in this file.
struct Failed {
  std::string what;
};
void expect(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Failed{std::string(what) + ": " + cublasLtGetStatusString(status)};
}

Operation make_operation() {
  cublasLtMatmulDesc_t made = nullptr;
  expect(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cuBLASLt operation");
  return Operation(made);
}
// cuBLASLt counts columns first: `height` is the length of what lies together.
Matrix make_matrix(cudaDataType type, std::int64_t height, std::int64_t width,
                   std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  expect(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(height),
                                    static_cast<std::uint64_t>(width), stride),
         "cuBLASLt matrix");
  return Matrix(made);
}

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
  expect(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
         "cuBLASLt operation");
}
template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  expect(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
         "cuBLASLt preference");
}

template <class Value>
void set(const Matrix& matrix, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  expect(cublasLtMatrixLayoutSetAttribute(matrix.get(), attribute, &value, sizeof(value)),
         "cuBLASLt matrix");
}
// So many matrices, `apart` elements from one to the next.
void repeat(const Matrix& matrix, std::int64_t times, std::int64_t apart) {
  set(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(times));
  set(matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, apart);
}

std::uint32_t alignment(const void* pointer) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t lowest = address & (~address + 1);
  return static_cast<std::uint32_t>(address == 0 ? kMost : std::min(lowest, kMost));
}

constexpr int kCandidates = 24;

// What decides the algorithm.
using Key = std::array<std::int64_t, 22>;
Key key_of(const Gemm& call, int device) {
  return {device,
          call.rows,
          call.columns,
          call.inner,
          call.left.stride,
          call.right.stride,
          call.left.turned ? 1 : 0,
          call.right.turned ? 1 : 0,
          static_cast<std::int64_t>(call.out_type),
          call.added == nullptr ? 0 : 1,
          call.bias == nullptr ? 0 : 1,
          static_cast<std::int64_t>(call.left.element),
          static_cast<std::int64_t>(call.right.element),
          call.rough ? 1 : 0,
          call.loose ? 1 : 0,
          call.groups,
          call.left_group,
          call.out_group,
          alignment(call.left.memory),
          alignment(call.right.memory),
          alignment(call.out),
          call.added == nullptr ? 0 : alignment(call.added)};
}

struct Prepared {
  Operation operation;
  Matrix first, second, out;                     // as cuBLASLt sees them
  std::vector<cublasLtMatmulAlgo_t> algorithms;  // the likeliest first; one, when it was chosen
};

cudaDataType type_of(Element element) {
  switch (element) {
    case Element::bf16:
      return CUDA_R_16BF;
    case Element::e4m3:
      return CUDA_R_8F_E4M3;
    case Element::e5m2:
      return CUDA_R_8F_E5M2;
  }
  throw Failed{"an element that cuBLASLt does not know"};
}

// What differs between two calls of one key.
void set_pointers(const Prepared& ready, const Gemm& call) {
  if (call.bias != nullptr) set(ready.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  if (call.right.scale != nullptr)
    set(ready.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.right.scale);
  if (call.left.scale != nullptr)
    set(ready.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.left.scale);
}

void multiply(const Prepared& ready, const cublasLtMatmulAlgo_t& algorithm, const Gemm& call,
              void* out, cublasLtHandle_t handle, cudaStream_t stream) {
  const float one = 1, beta = call.added == nullptr ? 0.0F : 1.0F;
  expect(cublasLtMatmul(handle, ready.operation.get(), &one, call.right.memory, ready.first.get(),
                        call.left.memory, ready.second.get(), &beta,
                        call.added == nullptr ? out : call.added, ready.out.get(), out,
                        ready.out.get(), &algorithm, call.workspace, call.workspace_size, stream),
         "cublasLtMatmul");
}

// Blocks of a cluster begin together, on processors that are near each other: these are of a pair.
constexpr std::uint16_t kLooseClusters[] = {
    CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1, CUBLASLT_CLUSTER_SHAPE_1x1x1};

// The same algorithm in other clusters, where that exists.
void add_loose(Prepared& made, const Gemm& call, cublasLtMatmulAlgo_t algorithm,
               cublasLtHandle_t handle) {
  for (const std::uint16_t shape : kLooseClusters) {
    cublasLtMatmulHeuristicResult_t checked{};
    if (cublasLtMatmulAlgoConfigSetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                             &shape, sizeof(shape)) == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoCheck(handle, made.operation.get(), made.first.get(), made.second.get(),
                                made.out.get(), made.out.get(), &algorithm,
                                &checked) == CUBLAS_STATUS_SUCCESS &&
        checked.state == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= call.workspace_size)
      made.algorithms.push_back(algorithm);
  }
}

// Rows that lie one after the other are columns to cuBLASLt: it makes outᵀ = rightᵀ · leftᵀ from
// the same memory, so that a bias of our columns is one of its rows.
Prepared prepare(const Gemm& call, cublasLtHandle_t handle) {
  const auto turn = [](bool turned) { return turned ? CUBLAS_OP_T : CUBLAS_OP_N; };
  Prepared made{make_operation(), {}, {}, {}, {}};
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSA, turn(call.right.turned));
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSB, turn(call.left.turned));
  if (call.bias != nullptr)
    set(made.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(made.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(call.rough));
  set_pointers(made, call);
  const cudaDataType right = type_of(call.right.element), left = type_of(call.left.element);
  made.first = call.right.turned ? make_matrix(right, call.inner, call.columns, call.right.stride)
                                 : make_matrix(right, call.columns, call.inner, call.right.stride);
  made.second = call.left.turned ? make_matrix(left, call.rows, call.inner, call.left.stride)
                                 : make_matrix(left, call.inner, call.rows, call.left.stride);
  made.out = make_matrix(call.out_type == Type::bf16 ? CUDA_R_16BF : CUDA_R_32F, call.columns,
                         call.rows, call.columns);
  if (call.groups > 1) {
    repeat(made.first, call.groups, 0);
    repeat(made.second, call.groups, call.left_group);
    repeat(made.out, call.groups, call.out_group);
  }
  cublasLtMatmulPreference_t wanted = nullptr;
  expect(cublasLtMatmulPreferenceCreate(&wanted), "cuBLASLt preference");
  const Preference preference(wanted);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, call.workspace_size);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(call.right.memory));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(call.left.memory));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      alignment(call.added == nullptr ? call.out : call.added));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(call.out));
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int found = 0;
  expect(cublasLtMatmulAlgoGetHeuristic(handle, made.operation.get(), made.first.get(),
                                        made.second.get(), made.out.get(), made.out.get(),
                                        preference.get(), kCandidates, candidates.data(), &found),
         "cuBLASLt heuristic");
  for (int i = 0; i < found; ++i) {
    const auto& one = candidates[static_cast<std::size_t>(i)];
    if (one.state != CUBLAS_STATUS_SUCCESS) continue;
    if (call.loose)
      add_loose(made, call, one.algo, handle);
    else
      made.algorithms.push_back(one.algo);
  }
  if (made.algorithms.empty()) throw Failed{"cuBLASLt has no algorithm for the shape"};
  return made;
}

// Memory of the stream, for results that nobody wants.
class Scratch {
 public:
  Scratch(std::size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (cudaMallocAsync(&memory_, bytes, stream) != cudaSuccess) {
      memory_ = nullptr;
      cudaGetLastError();  // forgotten: the product goes on without it
    }
  }
  ~Scratch() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* memory() const { return memory_; }

 private:
  cudaStream_t stream_;
  void* memory_ = nullptr;
};

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  template <class Body>
  float milliseconds(const Body& body) {
    cudaEventRecord(begin_, stream_);
    body();
    cudaEventRecord(end_, stream_);
    float time = 0;
    if (cudaEventSynchronize(end_) != cudaSuccess ||
        cudaEventElapsedTime(&time, begin_, end_) != cudaSuccess)
      throw Failed{"the device does not answer"};
    return time;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The first product of a shape tries what cuBLASLt finds likely, and the fastest stays. What it
// deems best is the fastest for most shapes and 5 to 15% slower for some. The device's speed varies
// while this goes on, so the candidates take turns, and each is judged by its best.
void choose(Prepared& ready, const Gemm& call, cublasLtHandle_t handle, cudaStream_t stream) {
  constexpr int kRounds = 4;
  constexpr float kClearly = 0.985F;  // of the time of what cuBLASLt deems best
  if (ready.algorithms.size() == 1) return;
  const std::size_t element = call.out_type == Type::bf16 ? 2 : 4;
  const std::int64_t elements = (call.groups - 1) * call.out_group + call.rows * call.columns;
  const Scratch scratch(static_cast<std::size_t>(elements) * element, stream);
  if (scratch.memory() == nullptr) {
    ready.algorithms.resize(1);
    return;
  }
  Stopwatch stopwatch(stream);
  std::vector<float> times(ready.algorithms.size(), std::numeric_limits<float>::max());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < times.size(); ++i) {
      const float time = stopwatch.milliseconds(
          [&] { multiply(ready, ready.algorithms[i], call, scratch.memory(), handle, stream); });
      if (round > 0) times[i] = std::min(times[i], time);
    }
  const auto best = std::ranges::min_element(times);
  const bool clearly = *best < kClearly * times.front();
  ready.algorithms = {
      ready.algorithms[clearly ? static_cast<std::size_t>(best - times.begin()) : 0]};
}

// Each thread has its own: an operation holds the pointer of its bias.
struct Products {
  std::map<int, cublasLtHandle_t> handles;  // by device; live as long as the process
  std::map<Key, Prepared> prepared;

  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& one = handles[device];
    if (one == nullptr) expect(cublasLtCreate(&one), "cublasLtCreate");
    return one;
  }
};

}  // namespace

std::string gemm(const Gemm& call, Stream stream) {
  thread_local Products products;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return "there is no device";
  try {
    const cublasLtHandle_t handle = products.handle(device);
    const Key key = key_of(call, device);
    auto entry = products.prepared.find(key);
    if (entry == products.prepared.end()) {
      Prepared made = prepare(call, handle);
      choose(made, call, handle, static_cast<cudaStream_t>(stream));
      entry = products.prepared.emplace(key, std::move(made)).first;
    }
    const Prepared& ready = entry->second;
    set_pointers(ready, call);
    multiply(ready, ready.algorithms.front(), call, call.out, handle,
             static_cast<cudaStream_t>(stream));
  } catch (const Failed& failed) {
    return failed.what;
  }
  return {};
}

}  // namespace braid::ops::kernels
