// Pooling of pictures channels last (H x W x C): a thread computes N neighbouring channels of a window forward, of a
// pixel backward, which adds in a fixed order, without atomics. Windows are those of common.cu. `winner` is the place of
// each maximum in its window, row by row: of equal values the first. NaN is passed on. Windows of the usual sizes have
// kernels of their own, below, in which all that a thread reads is known before it begins.
typedef unsigned char byte;

template <int N>
struct alignas(N) Bytes {
  byte at[N];
};

#define AXES                                                                                            \
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
    float share = 1.0f / (rows.length(r) * columns.length(c));
    Pack<T, N> result;
#pragma unroll
    for (int k = 0; k < N; k++) result.set(k, sums[k] * share);
    y[i] = result;
  });
}

template <class T, int N>
__device__ void mean_back(Index count, const Pack<T, N>* __restrict__ dy, Pack<T, N>* __restrict__ dx, AXES) {
  ROWS_COLUMNS;
  each_group(count, h, w, groups, by_groups, by_rows, by_columns, [&](Index i, Index picture, int a, int b, int g) {
    dx[i] = over_windows<T, N>(rows, columns, picture, a, b, [&](float(&sums)[N], Index window, int r, int c) {
      Pack<T, N> gradients = dy[window * groups + g];
      float share = 1.0f / (rows.length(r) * columns.length(c));
#pragma unroll
      for (int k = 0; k < N; k++) sums[k] += gradients.get(k) * share;
    });
  });
}

// Windows of K x K pixels at a distance of S, in pictures of fewer than 2^31 packs. Forward a thread computes HIGH of
// them, one below the other, and so takes the maximum, or the sum, of each line of K pixels once.

// Outside the picture lies what is next to it inside: it changes no maximum. Maxima's places are N numbers of 16 bits,
// in pairs; N is a multiple of 4.
__device__ inline int within(int i, int size) { return i < 0 ? 0 : i < size ? i : size - 1; }

template <int N>
struct alignas(N) Fourths {  // N bytes, four in each number
  unsigned at[N / 4];
};

template <int N>
struct Lanes {
  unsigned pairs[N / 2];
  __device__ void fill(int number) {
#pragma unroll
    for (int p = 0; p < N / 2; p++) pairs[p] = number * 0x10001u;
  }
  // Replace the numbers where the bits of `where` are set.
  __device__ void put(const Lanes& where, const Lanes& others) {
#pragma unroll
    for (int p = 0; p < N / 2; p++) pairs[p] = (pairs[p] & ~where.pairs[p]) | (others.pairs[p] & where.pairs[p]);
  }
  __device__ void widen(const Fourths<N>& bytes) {
#pragma unroll
    for (int f = 0; f < N / 4; f++) {
      pairs[2 * f] = __byte_perm(bytes.at[f], 0, 0x4140);
      pairs[2 * f + 1] = __byte_perm(bytes.at[f], 0, 0x4342);
    }
  }
  __device__ Fourths<N> less(int number) const {
    Fourths<N> bytes;
    unsigned both = number * 0x10001u;
#pragma unroll
    for (int f = 0; f < N / 4; f++) bytes.at[f] = __byte_perm(pairs[2 * f] - both, pairs[2 * f + 1] - both, 0x6420);
    return bytes;
  }
};

// Add `first` where the lower halves of two pairs are equal, and `second` where the upper halves are. Small integers
// are half precision's smallest numbers, of which one instruction compares two.
__device__ inline void add_where(unsigned pair, unsigned other, float& low, float& high, float first, float second) {
#ifdef __CUDA_ARCH__
  asm("{\n.reg .pred p, q;\nsetp.eq.f16x2 p|q, %2, %3;\n@p add.rn.f32 %0, %0, %4;\n@q add.rn.f32 %1, %1, %5;\n}"
      : "+f"(low), "+f"(high)
      : "r"(pair), "r"(other), "f"(first), "f"(second));
#else
  if ((pair & 0xffff) == (other & 0xffff)) low += first;
  if (pair >> 16 == other >> 16) high += second;
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PAIRED(T) (sizeof(T) == 2)  // instructions for two numbers of bfloat16
#else
#define PAIRED(T) false
#endif

// Of each two numbers the larger, or NaN.
template <class T, int N>
__device__ Pack<T, N> larger(const Pack<T, N>& a, const Pack<T, N>& b) {
  Pack<T, N> result;
#pragma unroll
  for (int k = 0; k < N; k += 2)
    if constexpr (PAIRED(T)) {
      unsigned first, second;
      memcpy(&first, a.at + k, 4), memcpy(&second, b.at + k, 4);
      asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(first) : "r"(second));
      memcpy(result.at + k, &first, 4);
    } else {
#pragma unroll
      for (int i = k; i < k + 2; i++) result.at[i] = b.get(i) > a.get(i) || b.get(i) != b.get(i) ? b.at[i] : a.at[i];
    }
  return result;
}

// All bits of the numbers that equal the maximum; of all where that is NaN.
template <class T, int N>
__device__ Lanes<N> equal(const Pack<T, N>& values, const Pack<T, N>& most) {
  Lanes<N> result;
#pragma unroll
  for (int k = 0; k < N; k += 2)
    if constexpr (PAIRED(T)) {
      unsigned value, largest;
      memcpy(&value, values.at + k, 4), memcpy(&largest, most.at + k, 4);
      asm("set.equ.u32.bf16x2 %0, %1, %2;" : "=r"(result.pairs[k / 2]) : "r"(value), "r"(largest));
    } else {
      result.pairs[k / 2] = values.get(k) < most.get(k) ? 0 : 0xffff;
      result.pairs[k / 2] |= values.get(k + 1) < most.get(k + 1) ? 0 : 0xffff0000;
    }
  return result;
}

template <class T, int N, int K, int S, int HIGH>
__device__ void known_most(Index count, const Pack<T, N>* __restrict__ x, Pack<T, N>* __restrict__ y,
                           Fourths<N>* __restrict__ winner, AXES) {
  constexpr int LINES = (HIGH - 1) * S + K;
  int strips = (oh + HIGH - 1) / HIGH;
  each_group(count, strips, ow, groups, by_groups, by_rows, by_columns, [&](Index, Index image, int strip, int c, int g) {
    int r0 = strip * HIGH, top = r0 * S - ph, left = c * S - pw, columns[K];
    const Pack<T, N>* picture = x + image * h * w * groups + g;
    Pack<T, N> values[LINES][K], most[LINES];
    Lanes<N> places[LINES];
#pragma unroll
    for (int b = 0; b < K; b++) columns[b] = within(left + b, w);
#pragma unroll
    for (int a = 0; a < LINES; a++) {
      int line = within(top + a, h) * w * groups;
#pragma unroll
      for (int b = 0; b < K; b++) values[a][b] = picture[(unsigned)(line + columns[b] * groups)];
    }
#pragma unroll
    for (int a = 0; a < LINES; a++) {
      most[a] = values[a][0];
#pragma unroll
      for (int b = 1; b < K; b++) most[a] = larger(most[a], values[a][b]);
      int begin = (within(top + a, h) - top) * K - left;
      places[a].fill(begin + columns[K - 1]);
#pragma unroll
      for (int b = K - 2; b >= 0; b--) {  // the first of equal values is the last to be put
        Lanes<N> here;
        here.fill(begin + columns[b]);
        places[a].put(equal(values[a][b], most[a]), here);
      }
    }
    Index window = ((image * oh + r0) * ow + c) * groups + g;
#pragma unroll
    for (int k = 0; k < HIGH; k++) {
      Pack<T, N> result = most[k * S];
#pragma unroll
      for (int a = 1; a < K; a++) result = larger(result, most[k * S + a]);
      Lanes<N> place = places[k * S + K - 1];
#pragma unroll
      for (int a = K - 2; a >= 0; a--) place.put(equal(most[k * S + a], result), places[k * S + a]);
      if (r0 + k < oh) {
        y[window + k * ow * groups] = result;
        winner[window + k * ow * groups] = place.less(k * S * K);
      }
    }
  });
}

template <class T, int N, int K, int S, int HIGH>
__device__ void known_mean(Index count, const Pack<T, N>* __restrict__ x, Pack<T, N>* __restrict__ y, AXES) {
  constexpr int LINES = (HIGH - 1) * S + K;
  Axis rows = {h, oh, K, S, ph, by_sh}, columns = {w, ow, K, S, pw, by_sw};
  int strips = (oh + HIGH - 1) / HIGH;
  each_group(count, strips, ow, groups, by_groups, by_rows, by_columns, [&](Index, Index image, int strip, int c, int g) {
    int r0 = strip * HIGH, top = r0 * S - ph, left = c * S - pw;
    const Pack<T, N>* picture = x + image * h * w * groups + g;
    Pack<T, N> values[LINES][K];
    float sums[LINES][N] = {};
#pragma unroll
    for (int a = 0; a < LINES; a++) {
      int line = (top + a) * w * groups;
#pragma unroll
      for (int b = 0; b < K; b++) {
        bool inside = top + a >= 0 && top + a < h && left + b >= 0 && left + b < w;
        values[a][b] = {};
        if (inside) values[a][b] = picture[(unsigned)(line + (left + b) * groups)];
      }
    }
#pragma unroll
    for (int a = 0; a < LINES; a++)
#pragma unroll
      for (int b = 0; b < K; b++)
#pragma unroll
        for (int n = 0; n < N; n++) sums[a][n] += values[a][b].get(n);
    Index window = ((image * oh + r0) * ow + c) * groups + g;
#pragma unroll
    for (int k = 0; k < HIGH; k++) {
      if (r0 + k >= oh) break;
      float share = 1.0f / (rows.length(r0 + k) * columns.length(c));
      Pack<T, N> result;
#pragma unroll
      for (int n = 0; n < N; n++) {
        float sum = sums[k * S][n];
#pragma unroll
        for (int a = 1; a < K; a++) sum += sums[k * S + a][n];
        result.set(n, sum * share);
      }
      y[window + k * ow * groups] = result;
    }
  });
}

// Backward a thread computes HIGH x WIDE pixels, multiples of S, and reads each window that holds any of them once.
// What a window gives to a pixel depends on the pixel's place in it. Pixels are counted from the padding on. `outside`
// has all bits where there is no such window; another one is read then.
template <class T, int N>
struct ToWinner {
  const Pack<T, N>* dy;
  const Fourths<N>* winner;
  Pack<T, N> gradients;
  Lanes<N> winners;
  __device__ void move(Index by) { dy += by, winner += by; }
  __device__ void read(unsigned at, unsigned outside) {
    gradients = dy[at];
    Fourths<N> bytes = winner[at];
#pragma unroll
    for (int f = 0; f < N / 4; f++) bytes.at[f] |= outside;
    winners.widen(bytes);
  }
  __device__ void share(int area) {}
  __device__ void add(float (&sums)[N], int place) const {
#pragma unroll
    for (int n = 0; n < N; n += 2)
      add_where(winners.pairs[n / 2], place * 0x10001u, sums[n], sums[n + 1], gradients.get(n), gradients.get(n + 1));
  }
};

template <class T, int N>
struct ToAll {
  const Pack<T, N>* dy;
  Pack<T, N> gradients;
  float part;
  __device__ void move(Index by) { dy += by; }
  __device__ void read(unsigned at, unsigned outside) {
    gradients = {};
    if (!outside) gradients = dy[at];
  }
  __device__ void share(int area) { part = 1.0f / area; }
  __device__ void add(float (&sums)[N], int place) const {
#pragma unroll
    for (int n = 0; n < N; n++) sums[n] = fmaf(gradients.get(n), part, sums[n]);
  }
};

template <class T, int N, int K, int S, int HIGH, int WIDE, class Window>
__device__ void known_back(Index count, Pack<T, N>* __restrict__ dx, const Window& source, AXES) {
  constexpr int BEFORE = (K - 1) / S, ROWS = HIGH / S + BEFORE, COLUMNS = WIDE / S + BEFORE;
  Axis rows = {h, oh, K, S, ph, by_sh}, columns = {w, ow, K, S, pw, by_sw};
  int tall = (h + ph + HIGH - 1) / HIGH, broad = (w + pw + WIDE - 1) / WIDE;
  each_group(count, tall, broad, groups, by_groups, by_rows, by_columns, [&](Index, Index image, int p, int q, int g) {
    int r0 = p * (HIGH / S) - BEFORE, c0 = q * (WIDE / S) - BEFORE;
    Window first = source, windows[ROWS][COLUMNS];
    float sums[HIGH][WIDE][N] = {};
    Pack<T, N>* picture = dx + image * h * w * groups + g;
    first.move(image * oh * ow * groups + g);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int c = 0; c < COLUMNS; c++) {
        int row = within(r0 + r, oh), column = within(c0 + c, ow);
        unsigned at = row * ow * groups + column * groups, outside = (row ^ (r0 + r)) | (column ^ (c0 + c)) ? ~0u : 0;
        windows[r][c] = first;
        windows[r][c].read(at, outside);
        windows[r][c].share(rows.length(row) * columns.length(column));
      }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int a = 0; a < HIGH; a++)
#pragma unroll
          for (int b = 0; b < WIDE; b++) {
            int down = a + (BEFORE - r) * S, right = b + (BEFORE - c) * S;
            if (down >= 0 && down < K && right >= 0 && right < K) windows[r][c].add(sums[a][b], down * K + right);
          }
#pragma unroll
    for (int a = 0; a < HIGH; a++) {
      int row = p * HIGH - ph + a;
#pragma unroll
      for (int b = 0; b < WIDE; b++) {
        int column = q * WIDE - pw + b;
        Pack<T, N> result;
#pragma unroll
        for (int n = 0; n < N; n++) result.set(n, sums[a][b][n]);
        bool inside = row >= 0 && row < h && column >= 0 && column < w;
        if (inside) picture[(unsigned)(row * w * groups + column * groups)] = result;
      }
    }
  });
}

#define GIVEN \
  h, oh, kh, sh, ph, by_sh, w, ow, kw, sw, pw, by_sw, groups, by_groups, by_rows, by_columns
#define POOL(T, N, END)                                                                             \
  KERNEL pool_max##END(Index count, const T* x, T* y, byte* winner, AXES) {                         \
    most<T, N>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, (Bytes<N>*)winner, GIVEN);              \
  }                                                                                                 \
  KERNEL pool_max_back##END(Index count, const T* dy, const byte* winner, T* dx, AXES) {            \
    most_back<T, N>(count, (const Pack<T, N>*)dy, (const Bytes<N>*)winner, (Pack<T, N>*)dx, GIVEN); \
  }                                                                                                 \
  KERNEL pool_mean##END(Index count, const T* x, T* y, AXES) {                                      \
    mean<T, N>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, GIVEN);                                 \
  }                                                                                                 \
  KERNEL pool_mean_back##END(Index count, const T* dy, T* dx, AXES) {                               \
    mean_back<T, N>(count, (const Pack<T, N>*)dy, (Pack<T, N>*)dx, GIVEN);                          \
  }

POOL(float, 1, _1)
POOL(float, 4, _4)
POOL(bf16, 1, _bf16_1)
POOL(bf16, 8, _bf16_8)

#define KNOWN(T, N, END, K, S, HIGH, TALL, BROAD)                                                           \
  READS_FIRST pool_max_##K##_##S##END(Index count, const T* x, T* y, byte* winner, AXES) {                  \
    known_most<T, N, K, S, HIGH>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, (Fourths<N>*)winner, GIVEN);  \
  }                                                                                                         \
  READS_FIRST pool_max_back_##K##_##S##END(Index count, const T* dy, const byte* winner, T* dx, AXES) {     \
    ToWinner<T, N> source = {(const Pack<T, N>*)dy, (const Fourths<N>*)winner};                             \
    known_back<T, N, K, S, TALL, BROAD>(count, (Pack<T, N>*)dx, source, GIVEN);                             \
  }                                                                                                         \
  READS_FIRST pool_mean_##K##_##S##END(Index count, const T* x, T* y, AXES) {                               \
    known_mean<T, N, K, S, HIGH>(count, (const Pack<T, N>*)x, (Pack<T, N>*)y, GIVEN);                       \
  }                                                                                                         \
  READS_FIRST pool_mean_back_##K##_##S##END(Index count, const T* dy, T* dx, AXES) {                        \
    known_back<T, N, K, S, TALL, BROAD>(count, (Pack<T, N>*)dx, ToAll<T, N>{(const Pack<T, N>*)dy}, GIVEN); \
  }
#define WINDOWS(T, N, END)        \
  KNOWN(T, N, END, 3, 2, 1, 2, 2) \
  KNOWN(T, N, END, 2, 2, 1, 2, 2) \
  KNOWN(T, N, END, 3, 1, 4, 2, 2)

WINDOWS(float, 4, _4)
WINDOWS(bf16, 8, _bf16_8)
