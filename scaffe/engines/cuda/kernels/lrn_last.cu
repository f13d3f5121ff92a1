// Local response normalisation across channels of x (pixels x channels); lrn.cu has the formulas. A thread computes N
// neighbouring channels of a pixel, and reads those around them: from the cache, as its neighbours read them too.
__device__ inline float power(float scale, float beta) {
  if (beta == 0.75f) return rsqrtf(scale) * sqrtf(rsqrtf(scale));  // the usual beta, at a tenth of the cost of powf
  return powf(scale, -beta);
}

// N channels of a pixel, and at least REACH on each side; 0 outside the pixel.
template <class T, int N, int REACH>
struct Around {
  static constexpr int PACKS = (REACH + N - 1) / N;  // on each side
  float at[(2 * PACKS + 1) * N];

  __device__ Around(const T* array, Index i, int group, int groups) {
#pragma unroll
    for (int p = -PACKS; p <= PACKS; p++) {
      Pack<T, N> pack = {};
      if (group + p >= 0 && group + p < groups) pack = ((const Pack<T, N>*)array)[i + p];
#pragma unroll
      for (int k = 0; k < N; k++) at[(p + PACKS) * N + k] = pack.get(k);
    }
  }
  // Channel c of the N; from -REACH on.
  __device__ float operator()(int c) const { return at[PACKS * N + c]; }
};

template <class T, int N, int REACH>
__device__ void forward(Index count, const T* __restrict__ x, T* __restrict__ y, int groups, Divisor by_groups,
                        float alpha, float beta, float k) {
  EACH(i, count) {
    Around<T, N, REACH> xs(x, i, in_row(i, count, groups, by_groups), groups);
    Pack<T, N> result;
#pragma unroll
    for (int c = 0; c < N; c++) {
      float squares = 0;
#pragma unroll
      for (int j = c - REACH; j <= c + REACH; j++) squares += xs(j) * xs(j);
      result.set(c, xs(c) * power(k + alpha * squares, beta));
    }
    ((Pack<T, N>*)y)[i] = result;
  }
}

template <class T, int N, int REACH>
__device__ void backward(Index count, const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx, int groups,
                         Divisor by_groups, float alpha, float beta, float k, float factor) {
  EACH(i, count) {
    int group = in_row(i, count, groups, by_groups);
    Around<T, N, 2 * REACH> xs(x, i, group, groups);
    Around<T, N, REACH> dys(dy, i, group, groups);
    float weighted[N + 2 * REACH], ratios[N + 2 * REACH];  // dy scale^-beta, and dy y / scale
#pragma unroll
    for (int j = -REACH; j < N + REACH; j++) {
      float squares = 0;
#pragma unroll
      for (int c = j - REACH; c <= j + REACH; c++) squares += xs(c) * xs(c);
      float scale = k + alpha * squares;
      weighted[j + REACH] = dys(j) * power(scale, beta);
      ratios[j + REACH] = weighted[j + REACH] * xs(j) / scale;
    }
    Pack<T, N> result;
#pragma unroll
    for (int c = 0; c < N; c++) {
      float sum = 0;
#pragma unroll
      for (int j = c; j <= c + 2 * REACH; j++) sum += ratios[j];
      result.set(c, weighted[c + REACH] - factor * xs(c) * sum);
    }
    ((Pack<T, N>*)dx)[i] = result;
  }
}

#define OF_REACH(T, N, REACH, END)                                                                                 \
  KERNEL lrn_##REACH##END(Index count, const T* x, T* y, int groups, word by_groups, float alpha, float beta,      \
                          float k) {                                                                               \
    forward<T, N, REACH>(count, x, y, groups, by_groups, alpha, beta, k);                                          \
  }                                                                                                                \
  KERNEL lrn_back_##REACH##END(Index count, const T* x, const T* dy, T* dx, int groups, word by_groups,            \
                               float alpha, float beta, float k, float factor) {                                   \
    backward<T, N, REACH>(count, x, dy, dx, groups, by_groups, alpha, beta, k, factor);                            \
  }
#define NORMALISE(T, N, END)  \
  OF_REACH(T, N, 1, END)      \
  OF_REACH(T, N, 2, END)      \
  OF_REACH(T, N, 3, END)      \
  OF_REACH(T, N, 4, END)

NORMALISE(float, 1, _1)
NORMALISE(float, 4, _4)
NORMALISE(bf16, 1, _bf16_1)
NORMALISE(bf16, 8, _bf16_8)
