// What all kernels share. Counts and places are long long: a blob may have more than 2^31 elements.
typedef long long Index;

#define KERNEL extern "C" __global__ void
#define THREADS 256  // of a block; a power of two

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

// Join the values of a block's threads, in an order that is always the same; each thread gets the result.
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
