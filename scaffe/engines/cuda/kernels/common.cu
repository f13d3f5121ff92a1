// Definitions for all kernels. Counts and indices are 64-bit: a blob may have more than 2^31 elements.
typedef long long Index;

#define KERNEL extern "C" __global__ void
#define THREADS 256  // per block; a power of two
// Of a kernel whose threads read much before they compute: with the registers of half a multiprocessor for each block the
// compiler leaves these reads in front, where they wait for the memory together.
#define READS_FIRST KERNEL __launch_bounds__(THREADS, 2)

#define EACH(i, count)                                                     \
  for (Index i = blockIdx.x * (Index)blockDim.x + threadIdx.x; i < count; \
       i += gridDim.x * (Index)blockDim.x)

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

struct Sum {
  template <class Value>
  static __device__ Value join(Value a, Value b) { return a + b; }
};
struct Max {
  static __device__ float join(float a, float b) { return a > b || a != a ? a : b; }
};

#define WARP 32

// Reduce the values of a block's threads by Op, in a fixed order; all threads get the result.
template <class Op, class Value>
__device__ Value over_block(Value value) {
  __shared__ Value of_warp[THREADS / WARP];
#pragma unroll
  for (int lanes = WARP / 2; lanes > 0; lanes /= 2) value = Op::join(value, __shfl_xor_sync(~0u, value, lanes));
  __syncthreads();  // all have read what an earlier reduction left
  if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = value;
  __syncthreads();
  value = of_warp[0];
#pragma unroll
  for (int warp = 1; warp < THREADS / WARP; warp++) value = Op::join(value, of_warp[warp]);
  return value;
}

typedef unsigned short bf16;  // the upper half of a float

__device__ inline float wide(float value) { return value; }
__device__ inline float wide(bf16 value) { return __int_as_float((int)value << 16); }
__device__ inline void store(float* place, float value) { *place = value; }
__device__ inline void store(bf16* place, float value) {  // rounded to nearest, ties to even
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*place) : "f"(value));
#else
  unsigned bits = __float_as_int(value);
  *place = value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#endif
}

// Softmax of `classes` scores from index `base` on, with stride `inner`, by the threads of a block.
__device__ inline void softmax_over_block(const float* scores, float* prob, Index base, int classes, int inner) {
  float most = -infinity(), sum = 0;
  for (int c = threadIdx.x; c < classes; c += blockDim.x) most = Max::join(most, scores[base + c * (Index)inner]);
  most = over_block<Max>(most);
  for (int c = threadIdx.x; c < classes; c += blockDim.x) {
    float value = expf(scores[base + c * (Index)inner] - most);
    prob[base + c * (Index)inner] = value;
    sum += value;
  }
  sum = over_block<Sum>(sum);
  for (int c = threadIdx.x; c < classes; c += blockDim.x) prob[base + c * (Index)inner] /= sum;
}

// Four elements, read and written by one instruction: transfers of 16 bytes per thread saturate the memory.
template <class Value>
struct alignas(sizeof(Value) < 4 ? 8 : 16) Four {
  Value at[4];
};
typedef Four<float> Quad;

__device__ inline bool for_quads(const void* array) { return (unsigned long long)array % sizeof(Quad) == 0; }

// Arrays of `count` elements, by fours; one by one where not all arrays are `aligned`. Four q begins at element 4 q.
struct Fours {
  Index count;
  bool aligned;
  __device__ Index size() const { return (count + 3) / 4; }
  __device__ bool whole(Index q) const { return aligned && 4 * q + 4 <= count; }
  template <class Value>
  __device__ Four<Value> read(const Value* array, Index q) const {
    if (whole(q)) return ((const Four<Value>*)array)[q];
    Four<Value> some = {};
    for (int k = 0; k < 4 && 4 * q + k < count; k++) some.at[k] = array[4 * q + k];
    return some;
  }
  // Float or bfloat16, as floats.
  template <class T>
  __device__ Quad floats(const T* array, Index q) const {
    Four<T> values = read(array, q);
    return {wide(values.at[0]), wide(values.at[1]), wide(values.at[2]), wide(values.at[3])};
  }
  template <class T>
  __device__ void put(T* array, Index q, const Quad& values) const {
    Four<T> some;
#pragma unroll
    for (int k = 0; k < 4; k++) store(some.at + k, values.at[k]);
    write(array, q, some);
  }
  template <class Value>
  __device__ void write(Value* array, Index q, const Four<Value>& values) const {
    if (whole(q)) ((Four<Value>*)array)[q] = values;
    else
      for (int k = 0; k < 4 && 4 * q + k < count; k++) array[4 * q + k] = values.at[k];
  }
};

// N consecutive numbers, float or bfloat16, read and written by one instruction: by default 16 bytes. Outside they are
// floats. A kernel that bounds its instructions sets a pack of its own: what it has read stays in whole registers then.
template <class T, int N = 16 / sizeof(T)>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
  __device__ float get(int i) const {
    if constexpr (sizeof(T) == sizeof(float) || N % 2) {
      return wide(at[i]);
    } else {  // one instruction for each number of a register, which holds two of them
      unsigned pair;
      memcpy(&pair, at + i / 2 * 2, sizeof pair);
      return __int_as_float(i % 2 ? pair & 0xffff0000 : pair << 16);
    }
  }
  __device__ void set(int i, float value) { store(at + i, value); }
};

// Arrays of `count` numbers by packs of 16 bytes; one by one where not all arrays are `aligned`.
template <class T>
struct Packs {
  static constexpr int MANY = 16 / sizeof(T);
  Index count;
  bool aligned;
  __device__ Index size() const { return (count + MANY - 1) / MANY; }
  __device__ bool whole(Index q) const { return aligned && MANY * (q + 1) <= count; }
  __device__ Pack<T> read(const T* array, Index q) const {
    if (whole(q)) return ((const Pack<T>*)array)[q];
    Pack<T> some = {};
#pragma unroll
    for (int k = 0; k < MANY; k++)
      if (MANY * q + k < count) some.at[k] = array[MANY * q + k];
    return some;
  }
  __device__ void write(T* array, Index q, const Pack<T>& values) const {
    if (whole(q)) ((Pack<T>*)array)[q] = values;
    else {
#pragma unroll
      for (int k = 0; k < MANY; k++)
        if (MANY * q + k < count) array[MANY * q + k] = values.at[k];
    }
  }
};

__device__ inline float rectify(float value) { return !(value <= 0) ? value : 0.0f; }  // passes NaN on

// What batch normalisation, with the scale behind it, makes of a channel's values: `by` times the distance from the mean,
// plus a bias. Both passes compute it in the same way, so that both find the same values to be above 0.
struct Line {
  float mean, by, bias;
  __device__ float distance(float x) const { return x - mean; }
  __device__ float of(float distance) const { return fmaf(distance, by, bias); }
};

// y = op(a) and y = op(a, b) for each element of arrays of float or bfloat16, 16 bytes a thread.
template <class T, class Op>
__device__ void map(Index count, const T* a, T* y, Op op) {
  Packs<T> packs = {count, for_quads(a) && for_quads(y)};
  EACH(q, packs.size()) {
    Pack<T> values = packs.read(a, q);
#pragma unroll
    for (int k = 0; k < Packs<T>::MANY; k++) values.set(k, op(values.get(k)));
    packs.write(y, q, values);
  }
}

template <class T, class Op>
__device__ void combine(Index count, const T* a, const T* b, T* y, Op op) {
  Packs<T> packs = {count, for_quads(a) && for_quads(b) && for_quads(y)};
  EACH(q, packs.size()) {
    Pack<T> values = packs.read(a, q), others = packs.read(b, q);
#pragma unroll
    for (int k = 0; k < Packs<T>::MANY; k++) values.set(k, op(values.get(k), others.get(k)));
    packs.write(y, q, values);
  }
}

// scale^-beta and 1 / scale, for local response normalisation. USUAL: beta is 0.75, which needs no powf.
template <bool USUAL>
struct Powers {
  float power, inverse;
  __device__ Powers(float scale, float beta) {
    if (USUAL) {
      float root = rsqrtf(scale);
      power = root * root * rsqrtf(root), inverse = root * root;
    } else {
      power = powf(scale, -beta), inverse = 1 / scale;
    }
  }
};

// Division of numbers below 2^31 by one divisor, which `divisor` prepares on the host. A GPU has no instruction for
// integer division, which would bound most kernels that compute indices. Granlund and Montgomery 1994, figure 4.1.
typedef unsigned long long word;

struct Divisor {
  unsigned factor, shift;
  __device__ Divisor(word prepared) : factor((unsigned)prepared), shift((unsigned)(prepared >> 32)) {}
  __device__ unsigned operator()(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
};

// Call work(row, column) for each of the `count` elements of a matrix, in 32 bits where they are fewer than 2^31.
template <class Work>
__device__ void each_cell(Index count, Index columns, Divisor by_columns, Work work) {
  if (count < 1ll << 31) {
    unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
      unsigned row = by_columns(i);
      work((Index)row, (Index)(i - row * (unsigned)columns));
    }
  } else {
    EACH(i, count) work(i / columns, i % columns);
  }
}

// Call work(i, picture, row, column) for each i below `count`, over pictures of rows x columns.
template <class Work>
__device__ void each_place(Index count, int rows, int columns, Divisor by_rows, Divisor by_columns, Work work) {
  if (count < 1ll << 31) {
    unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
      unsigned line = by_columns(i), picture = by_rows(line);
      work((Index)i, (Index)picture, (int)(line - picture * rows), (int)(i - line * columns));
    }
  } else {
    EACH(i, count) work(i, i / columns / rows, (int)(i / columns % rows), (int)(i % columns));
  }
}

// The place of element i, of `count`, among the `groups` of its row; in 32 bits where the elements are fewer than 2^31.
__device__ inline int in_row(Index i, Index count, int groups, Divisor by_groups) {
  if (count < 1ll << 31) return (int)((unsigned)i - by_groups((unsigned)i) * groups);
  return (int)(i % groups);
}

// Windows along one axis of pictures. They are clipped at the edge; their length includes padding, but nothing beyond it.
struct Axis {
  int size, out, kernel, stride, pad;
  Divisor by_stride;
  __device__ int begin(int i) const { return i * stride - pad; }
  __device__ int first(int i) const { return begin(i) < 0 ? 0 : begin(i); }
  __device__ int last(int i) const { return begin(i) + kernel < size ? begin(i) + kernel : size; }
  __device__ int length(int i) const { return (begin(i) + kernel < size + pad ? begin(i) + kernel : size + pad) - begin(i); }
  // The windows that contain pixel p: indices from(p) to to(p) - 1.
  __device__ int from(int p) const { return p + pad < kernel ? 0 : by_stride(p + pad - kernel) + 1; }
  __device__ int to(int p) const {
    int windows = by_stride(p + pad) + 1;
    return windows < out ? windows : out;
  }
};
