// Pooling of pictures (H x W): threads compute windows forward, pixels backward, which adds in a fixed order, without
// atomics. The windows along an axis are those of common.cu.
#define AXES \
  int h, int oh, int kh, int sh, int ph, word by_sh, int w, int ow, int kw, int sw, int pw, word by_sw, word by_strips, word by_columns
#define ROWS_COLUMNS Axis rows = {h, oh, kh, sh, ph, by_sh}, columns = {w, ow, kw, sw, pw, by_sw}

// A thread computes a strip of STRIP rows of one column, and so reads what their windows share once. Threads that follow
// one another compute neighbouring columns.
#define BACK 4  // rows of a strip in the backward pass
#define HIGH 3  // windows that are read together
#define WIDE 2

// The results of the windows in a strip that begins at row r0 of column c.
template <class Result, int STRIP>
struct Strip {
  Result results[STRIP];

  __device__ Strip(const float* values, const Axis& rows, const Axis& columns, int r0, int c) {
    int last = r0 + STRIP < rows.out ? r0 + STRIP : rows.out, end = columns.last(c);
#pragma unroll
    for (int k = 0; k < STRIP; k++) results[k].begin(rows.first(r0 + k) * columns.size + columns.first(c));
    for (int a = rows.first(r0); a < rows.last(last - 1); a++)
      for (int b = columns.first(c); b < end; b += 3) {
        float row[3];
#pragma unroll
        for (int j = 0; j < 3; j++) row[j] = b + j < end ? values[a * columns.size + b + j] : Result::none();
#pragma unroll
        for (int k = 0; k < STRIP; k++)
          if (a >= rows.first(r0 + k) && a < rows.last(r0 + k))
#pragma unroll
            for (int j = 0; j < 3; j++) results[k].take(row[j], a * columns.size + b + j);
      }
  }
};

struct Largest {
  float value;
  int place;
  static __device__ float none() { return -infinity(); }
  __device__ void begin(int first) { value = none(), place = first; }
  __device__ void take(float other, int at) {
    if (other > value || other != other) value = other, place = at;
  }
};

struct Total {
  float value;
  static __device__ float none() { return 0; }
  __device__ void begin(int first) { value = 0; }
  __device__ void take(float other, int at) { value += other; }
};

template <int STRIP>
__device__ void pool_max(Index count, const float* __restrict__ x, float* __restrict__ y, int* __restrict__ winner,
                         const Axis& rows, const Axis& columns, word by_strips, word by_columns) {
  each_place(count, (rows.out + STRIP - 1) / STRIP, columns.out, by_strips, by_columns,
             [&](Index, Index picture, int strip, int c) {
    int r0 = strip * STRIP;
    Strip<Largest, STRIP> of(x + picture * rows.size * columns.size, rows, columns, r0, c);
    Index window = (picture * rows.out + r0) * columns.out + c;
#pragma unroll
    for (int k = 0; k < STRIP; k++)
      if (r0 + k < rows.out) {
        y[window + k * columns.out] = of.results[k].value;
        winner[window + k * columns.out] = of.results[k].place;
      }
  });
}

template <int STRIP>
__device__ void pool_mean(Index count, const float* __restrict__ x, float* __restrict__ y, const Axis& rows,
                          const Axis& columns, word by_strips, word by_columns) {
  each_place(count, (rows.out + STRIP - 1) / STRIP, columns.out, by_strips, by_columns,
             [&](Index, Index picture, int strip, int c) {
    int r0 = strip * STRIP;
    Strip<Total, STRIP> of(x + picture * rows.size * columns.size, rows, columns, r0, c);
    Index window = (picture * rows.out + r0) * columns.out + c;
#pragma unroll
    for (int k = 0; k < STRIP; k++)
      if (r0 + k < rows.out)
        y[window + k * columns.out] = of.results[k].value / (rows.length(r0 + k) * columns.length(c));
  });
}

// The gradients of the pixels of a strip. HIGH x WIDE windows are read at once; each term's `of` is what a pixel (a, b) of
// one of its columns gets from it.
template <class Term>
__device__ void pool_back(Index count, float* __restrict__ dx, const Axis& rows, const Axis& columns, word by_strips,
                          word by_columns, const Term& source) {
  each_place(count, (rows.size + BACK - 1) / BACK, columns.size, by_strips, by_columns,
             [&](Index, Index picture, int strip, int b) {
    int a0 = strip * BACK, last = a0 + BACK < rows.size ? a0 + BACK : rows.size;
    int r_end = rows.to(last - 1), c_end = columns.to(b);
    Index windows = picture * rows.out * columns.out;
    float sums[BACK] = {};
    for (int r0 = rows.from(a0); r0 < r_end; r0 += HIGH)
      for (int c0 = columns.from(b); c0 < c_end; c0 += WIDE) {
        Term terms[HIGH][WIDE];
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
          for (int j = 0; j < WIDE; j++) {
            terms[i][j] = source;
            bool inside = r0 + i < r_end && c0 + j < c_end;
            terms[i][j].read(inside, windows + (r0 + i) * columns.out + c0 + j, rows, columns, r0 + i, c0 + j);
          }
#pragma unroll
        for (int i = 0; i < HIGH; i++)
#pragma unroll
          for (int j = 0; j < WIDE; j++)
#pragma unroll
            for (int k = 0; k < BACK; k++) sums[k] += terms[i][j].of(rows, columns, r0 + i, a0 + k, b);
      }
    Index pixel = (picture * rows.size + a0) * columns.size + b;
#pragma unroll
    for (int k = 0; k < BACK; k++)
      if (a0 + k < rows.size) dx[pixel + k * columns.size] = sums[k];
  });
}

struct ToWinner {
  const float* dy;
  const int* winner;
  float gradient;
  int place;
  __device__ void read(bool inside, Index window, const Axis& rows, const Axis& columns, int r, int c) {
    gradient = inside ? dy[window] : 0.0f;
    place = inside ? winner[window] : -1;
  }
  __device__ float of(const Axis& rows, const Axis& columns, int r, int a, int b) const {
    return place == a * columns.size + b ? gradient : 0.0f;
  }
};

struct ToAll {
  const float* dy;
  float gradient;
  __device__ void read(bool inside, Index window, const Axis& rows, const Axis& columns, int r, int c) {
    gradient = inside ? dy[window] / (rows.length(r) * columns.length(c)) : 0.0f;
  }
  __device__ float of(const Axis& rows, const Axis& columns, int r, int a, int b) const {
    return a >= rows.first(r) && a < rows.last(r) ? gradient : 0.0f;
  }
};

#define STRIPS(STRIP)                                                                                              \
  KERNEL pool_max_##STRIP(Index count, const float* x, float* y, int* winner, AXES) {                              \
    ROWS_COLUMNS;                                                                                                  \
    pool_max<STRIP>(count, x, y, winner, rows, columns, by_strips, by_columns);                                    \
  }                                                                                                                \
  KERNEL pool_mean_##STRIP(Index count, const float* x, float* y, AXES) {                                          \
    ROWS_COLUMNS;                                                                                                  \
    pool_mean<STRIP>(count, x, y, rows, columns, by_strips, by_columns);                                           \
  }

STRIPS(1)
STRIPS(4)

KERNEL pool_max_back(Index count, const float* dy, const int* winner, float* dx, AXES) {
  ROWS_COLUMNS;
  pool_back(count, dx, rows, columns, by_strips, by_columns, ToWinner{dy, winner});
}

KERNEL pool_mean_back(Index count, const float* dy, float* dx, AXES) {
  ROWS_COLUMNS;
  pool_back(count, dx, rows, columns, by_strips, by_columns, ToAll{dy});
}
