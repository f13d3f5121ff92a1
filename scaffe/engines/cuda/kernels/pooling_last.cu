// Pooling of pictures channels last (H x W x C): a thread computes N neighbouring channels of a window forward, of a pixel
// backward, which adds in a fixed order, without atomics. Windows are those of common.cu. `winner` is the place of each
// maximum in its window, row by row: of equal values the first.
typedef unsigned char byte;

template <int N>
struct alignas(N) Bytes {
  byte at[N];
};

#define AXES \
  int h, int oh, int kh, int sh, int ph, word by_sh, int w, int ow, int kw, int sw, int pw, word by_sw, \
  int groups, word by_groups, word by_rows, word by_columns
#define ROWS_COLUMNS Axis rows = {h, oh, kh, sh, ph, by_sh}, columns = {w, ow, kw, sw, pw, by_sw}

// Call work(i, picture, row, column, group) for each i below `count`, over groups of channels of pictures' places.
template <class Work>
__device__ void each_group(Index count, int height, int width, int groups, Divisor by_groups, Divisor by_height,
                           Divisor by_width, Work work) {
  EACH(i, count) {
    bool small = count < 1ll << 31;
    Index place = small ? (Index)by_groups((unsigned)i) : i / groups;
    Index line = small ? (Index)by_width((unsigned)place) : place / width;
    Index picture = small ? (Index)by_height((unsigned)line) : line / height;
    work(i, picture, (int)(line - picture * height), (int)(place - line * width), (int)(i - place * groups));
  }
}

template <class T, int N>
__device__ void most(Index count, const Pack<T, N>* __restrict__ x, Pack<T, N>* __restrict__ y,
                     Bytes<N>* __restrict__ winner, AXES) {
  ROWS_COLUMNS;
  each_group(count, oh, ow, groups, by_groups, by_rows, by_columns, [&](Index i, Index picture, int r, int c, int g) {
    float best[N];
    int place[N], begin = (rows.first(r) - rows.begin(r)) * kw + columns.first(c) - columns.begin(c);
#pragma unroll
    for (int k = 0; k < N; k++) best[k] = -infinity(), place[k] = begin;
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) {
        Pack<T, N> values = x[((picture * h + a) * w + b) * groups + g];
        int here = (a - rows.begin(r)) * kw + b - columns.begin(c);
#pragma unroll
        for (int k = 0; k < N; k++) {
          float value = values.get(k);
          if (value > best[k] || value != value) best[k] = value, place[k] = here;
        }
      }
    Pack<T, N> result;
    Bytes<N> winners;
#pragma unroll
    for (int k = 0; k < N; k++) result.set(k, best[k]), winners.at[k] = (byte)place[k];
    y[i] = result;
    winner[i] = winners;
  });
}

// The sum of term(k, window, r, c) for each of N channels, over the windows of a picture that contain a pixel.
template <class T, int N, class Term>
__device__ Pack<T, N> over_windows(const Axis& rows, const Axis& columns, Index picture, int a, int b, Term add) {
  float sums[N] = {};
  int r_end = rows.to(a), c_begin = columns.from(b), c_end = columns.to(b);
  for (int r = rows.from(a); r < r_end; r++)
    for (int c = c_begin; c < c_end; c++) add(sums, (picture * rows.out + r) * columns.out + c, r, c);
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; k++) result.set(k, sums[k]);
  return result;
}

template <class T, int N>
__device__ void most_back(Index count, const Pack<T, N>* __restrict__ dy, const Bytes<N>* __restrict__ winner,
                          Pack<T, N>* __restrict__ dx, AXES) {
  ROWS_COLUMNS;
  each_group(count, h, w, groups, by_groups, by_rows, by_columns, [&](Index i, Index picture, int a, int b, int g) {
    dx[i] = over_windows<T, N>(rows, columns, picture, a, b, [&](float(&sums)[N], Index window, int r, int c) {
      int here = (a - rows.begin(r)) * kw + b - columns.begin(c);
      Pack<T, N> gradients = dy[window * groups + g];
      Bytes<N> winners = winner[window * groups + g];
#pragma unroll
      for (int k = 0; k < N; k++) sums[k] += winners.at[k] == here ? gradients.get(k) : 0.0f;
    });
  });
}

template <class T, int N>
__device__ void mean(Index count, const Pack<T, N>* __restrict__ x, Pack<T, N>* __restrict__ y, AXES) {
  ROWS_COLUMNS;
  each_group(count, oh, ow, groups, by_groups, by_rows, by_columns, [&](Index i, Index picture, int r, int c, int g) {
    float sums[N] = {};
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) {
        Pack<T, N> values = x[((picture * h + a) * w + b) * groups + g];
#pragma unroll
        for (int k = 0; k < N; k++) sums[k] += values.get(k);
      }
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; k++) result.set(k, sums[k] / (rows.length(r) * columns.length(c)));
    y[i] = result;
  });
}

template <class T, int N>
__device__ void mean_back(Index count, const Pack<T, N>* __restrict__ dy, Pack<T, N>* __restrict__ dx, AXES) {
  ROWS_COLUMNS;
  each_group(count, h, w, groups, by_groups, by_rows, by_columns, [&](Index i, Index picture, int a, int b, int g) {
    dx[i] = over_windows<T, N>(rows, columns, picture, a, b, [&](float(&sums)[N], Index window, int r, int c) {
      Pack<T, N> gradients = dy[window * groups + g];
      float area = rows.length(r) * columns.length(c);
#pragma unroll
      for (int k = 0; k < N; k++) sums[k] += gradients.get(k) / area;
    });
  });
}

#define GIVEN \
  h, oh, kh, sh, ph, by_sh, w, ow, kw, sw, pw, by_sw, groups, by_groups, by_rows, by_columns
#define POOL(T, N, END)                                                                                     \
  KERNEL pool_max##END(Index count, const T* x, T* y, byte* winner, AXES) {                                 \
    most<T, N>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, (Bytes<N>*)winner, GIVEN);                      \
  }                                                                                                         \
  KERNEL pool_max_back##END(Index count, const T* dy, const byte* winner, T* dx, AXES) {                    \
    most_back<T, N>(count, (const Pack<T, N>*)dy, (const Bytes<N>*)winner, (Pack<T, N>*)dx, GIVEN);         \
  }                                                                                                         \
  KERNEL pool_mean##END(Index count, const T* x, T* y, AXES) {                                              \
    mean<T, N>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, GIVEN);                                         \
  }                                                                                                         \
  KERNEL pool_mean_back##END(Index count, const T* dy, T* dx, AXES) {                                       \
    mean_back<T, N>(count, (const Pack<T, N>*)dy, (Pack<T, N>*)dx, GIVEN);                                  \
  }

POOL(float, 1, _1)
POOL(float, 4, _4)
POOL(bf16, 1, _bf16_1)
POOL(bf16, 8, _bf16_8)
