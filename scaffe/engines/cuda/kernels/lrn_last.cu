// Local response normalisation across channels of x (pixels x channels); lrn.cu has the formulas. A thread computes
// OWN packs of N neighbouring channels of a pixel, and reads those around them: from the cache, as its neighbours read
// them too.

// The channels of a thread, and at least REACH on each side; 0 outside the pixel.
template <class T, int N, int OWN, int REACH>
struct Around {
  static constexpr int PACKS = (REACH + N - 1) / N;  // on each side
  float at[(2 * PACKS + OWN) * N];

  // `pack` is the thread's first of all packs, and number `of_pixel` of the `packs` of its pixel.
  __device__ Around(const T* array, Index pack, int of_pixel, int packs) {
#pragma unroll
    for (int p = -PACKS; p < OWN + PACKS; p++) {
      Pack<T, N> values = {};
      if ((p >= 0 && p < OWN) || (of_pixel + p >= 0 && of_pixel + p < packs))
        values = ((const Pack<T, N>*)array)[pack + p];
#pragma unroll
      for (int k = 0; k < N; k++) at[(p + PACKS) * N + k] = values.get(k);
    }
  }
  // Channel c of the thread's; from -REACH on.
  __device__ float operator()(int c) const { return at[PACKS * N + c]; }
};

// The sums of each LENGTH neighbours, from those of 1, 2, 4, ... neighbours.
template <int LENGTH, int COUNT>
struct Windows {
  float sums[COUNT];
  __device__ Windows(float (&values)[COUNT + LENGTH - 1]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) sums[i] = values[i];
    int known = 1;
#pragma unroll
    for (int size = 2; size <= LENGTH; size *= 2) {
#pragma unroll
      for (int i = 0; i + size < COUNT + LENGTH; i++) values[i] += values[i + size / 2];
      if (LENGTH & size) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) sums[i] += values[i + known];
        known += size;
      }
    }
  }
};

template <class T, int N, int OWN, int REACH, bool USUAL>
__device__ void forward(Index count, const T* __restrict__ x, T* __restrict__ y, int groups, Divisor by_groups,
                        float alpha, float beta, float k) {
  EACH(i, count) {
    Around<T, N, OWN, REACH> xs(x, i * OWN, in_row(i, count, groups, by_groups) * OWN, groups * OWN);
    float squares[OWN * N + 2 * REACH];
#pragma unroll
    for (int c = 0; c < OWN * N + 2 * REACH; c++) squares[c] = xs(c - REACH) * xs(c - REACH);
    Windows<2 * REACH + 1, OWN * N> windows(squares);
#pragma unroll
    for (int p = 0; p < OWN; p++) {
      Pack<T, N> result;
#pragma unroll
      for (int c = 0; c < N; c++)
        result.set(c, xs(p * N + c) * Powers<USUAL>(fmaf(alpha, windows.sums[p * N + c], k), beta).power);
      ((Pack<T, N>*)y)[i * OWN + p] = result;
    }
  }
}

template <class T, int N, int OWN, int REACH, bool USUAL>
__device__ void backward(Index count, const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx, int groups,
                         Divisor by_groups, float alpha, float beta, float k, float factor) {
  constexpr int READ = OWN * N + 2 * REACH;  // channels whose scales are needed
  EACH(i, count) {
    int of_pixel = in_row(i, count, groups, by_groups) * OWN;
    Around<T, N, OWN, 2 * REACH> xs(x, i * OWN, of_pixel, groups * OWN);
    Around<T, N, OWN, REACH> dys(dy, i * OWN, of_pixel, groups * OWN);
    float squares[READ + 2 * REACH], weighted[READ], ratios[READ];  // weighted: dy scale^-beta; ratios: dy y / scale
#pragma unroll
    for (int c = 0; c < READ + 2 * REACH; c++) squares[c] = xs(c - 2 * REACH) * xs(c - 2 * REACH);
    Windows<2 * REACH + 1, READ> windows(squares);
#pragma unroll
    for (int c = 0; c < READ; c++) {
      Powers<USUAL> of(fmaf(alpha, windows.sums[c], k), beta);
      weighted[c] = dys(c - REACH) * of.power;
      ratios[c] = weighted[c] * (xs(c - REACH) * of.inverse);
    }
    Windows<2 * REACH + 1, OWN * N> sums(ratios);
#pragma unroll
    for (int p = 0; p < OWN; p++) {
      Pack<T, N> result;
#pragma unroll
      for (int c = p * N; c < p * N + N; c++)
        result.set(c - p * N, fmaf(-factor * xs(c), sums.sums[c], weighted[c + REACH]));
      ((Pack<T, N>*)dx)[i * OWN + p] = result;
    }
  }
}

#define OF_REACH(T, N, OWN, REACH, END)                                                                            \
  KERNEL lrn_##REACH##END(Index count, const T* x, T* y, int groups, word by_groups, float alpha, float beta,      \
                          float k) {                                                                               \
    if (beta == 0.75f) forward<T, N, OWN, REACH, true>(count, x, y, groups, by_groups, alpha, beta, k);            \
    else forward<T, N, OWN, REACH, false>(count, x, y, groups, by_groups, alpha, beta, k);                         \
  }                                                                                                                \
  KERNEL lrn_back_##REACH##END(Index count, const T* x, const T* dy, T* dx, int groups, word by_groups,            \
                               float alpha, float beta, float k, float factor) {                                   \
    if (beta == 0.75f)                                                                                             \
      backward<T, N, OWN, REACH, true>(count, x, dy, dx, groups, by_groups, alpha, beta, k, factor);               \
    else backward<T, N, OWN, REACH, false>(count, x, dy, dx, groups, by_groups, alpha, beta, k, factor);           \
  }
#define NORMALISE(T, N, OWN, END)  \
  OF_REACH(T, N, OWN, 1, END)      \
  OF_REACH(T, N, OWN, 2, END)      \
  OF_REACH(T, N, OWN, 3, END)      \
  OF_REACH(T, N, OWN, 4, END)

NORMALISE(float, 1, 1, _1)
NORMALISE(float, 4, 1, _4)
NORMALISE(float, 4, 2, _8)
NORMALISE(bf16, 1, 1, _bf16_1)
NORMALISE(bf16, 8, 1, _bf16_8)
NORMALISE(bf16, 8, 2, _bf16_16)
