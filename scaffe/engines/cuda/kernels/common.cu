// Definitions for all kernels. Counts and indices are 64-bit: a blob may have more than 2^31 elements.
typedef long long Index;

#define KERNEL extern "C" __global__ void
#define THREADS 256  // per block; a power of two

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

// Reduce the values of a block's threads by Op, in a fixed order; all threads get the result.
template <class Op, class Value>
__device__ Value over_block(Value value) {
  __shared__ Value values[THREADS];
  __syncthreads();
  values[threadIdx.x] = value;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) values[threadIdx.x] = Op::join(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();
  }
  return values[0];
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

// Four floats, read and written by one instruction: transfers of 16 bytes per thread saturate the memory.
struct alignas(16) Quad {
  float at[4];
};

// N consecutive numbers, float or bfloat16, read and written by one instruction: by default 16 bytes. Outside they are
// floats.
template <class T, int N = 16 / sizeof(T)>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
  __device__ float get(int i) const { return wide(at[i]); }
  __device__ void set(int i, float value) { store(at + i, value); }
};

__device__ inline bool for_quads(const void* array) { return (unsigned long long)array % sizeof(Quad) == 0; }

// Division of numbers below 2^31 by one divisor, which `divisor` prepares on the host. A GPU has no instruction for
// integer division, which would bound most kernels that compute indices. Granlund and Montgomery 1994, figure 4.1.
typedef unsigned long long word;

struct Divisor {
  unsigned factor, shift;
  __device__ Divisor(word prepared) : factor((unsigned)prepared), shift((unsigned)(prepared >> 32)) {}
  __device__ unsigned operator()(unsigned n) const { return (__umulhi(n, factor) + n) >> shift; }
};
