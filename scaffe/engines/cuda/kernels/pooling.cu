// Pooling of pictures (H x W): one thread per window forward, per pixel backward, which adds in a fixed order, without
// atomics. Windows are clipped at the edge; the mean includes padding, but nothing beyond it.
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

#define AXES \
  int h, int oh, int kh, int sh, int ph, word by_sh, int w, int ow, int kw, int sw, int pw, word by_sw, word by_rows, word by_columns
#define ROWS_COLUMNS Axis rows = {h, oh, kh, sh, ph, by_sh}, columns = {w, ow, kw, sw, pw, by_sw}

// The sum of term(window, r, c) over the windows of a picture that contain pixel (a, b).
template <class Term>
__device__ float over_windows(const Axis& rows, const Axis& columns, Index picture, int a, int b, Term term) {
  Index windows = picture * rows.out * columns.out;
  int r_end = rows.to(a), c_begin = columns.from(b), c_end = columns.to(b);
  float sum = 0;
  for (int r = rows.from(a); r < r_end; r++)
    for (int c = c_begin; c < c_end; c++) sum += term(windows + r * columns.out + c, r, c);
  return sum;
}

KERNEL pool_max(Index count, const float* __restrict__ x, float* __restrict__ y, int* __restrict__ winner, AXES) {
  ROWS_COLUMNS;
  each_place(count, oh, ow, by_rows, by_columns, [&](Index i, Index picture, int r, int c) {
    const float* values = x + picture * h * w;
    float best = -infinity();
    int place = rows.first(r) * w + columns.first(c);
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) {
        float value = values[a * w + b];
        if (value > best || value != value) best = value, place = a * w + b;
      }
    y[i] = best;
    winner[i] = place;
  });
}

KERNEL pool_max_back(Index count, const float* __restrict__ dy, const int* __restrict__ winner, float* __restrict__ dx,
                     AXES) {
  ROWS_COLUMNS;
  each_place(count, h, w, by_rows, by_columns, [&](Index i, Index picture, int a, int b) {
    dx[i] = over_windows(rows, columns, picture, a, b, [&](Index window, int, int) {
      return winner[window] == a * w + b ? dy[window] : 0.0f;
    });
  });
}

KERNEL pool_mean(Index count, const float* __restrict__ x, float* __restrict__ y, AXES) {
  ROWS_COLUMNS;
  each_place(count, oh, ow, by_rows, by_columns, [&](Index i, Index picture, int r, int c) {
    const float* values = x + picture * h * w;
    float sum = 0;
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) sum += values[a * w + b];
    y[i] = sum / (rows.length(r) * columns.length(c));
  });
}

KERNEL pool_mean_back(Index count, const float* __restrict__ dy, float* __restrict__ dx, AXES) {
  ROWS_COLUMNS;
  each_place(count, h, w, by_rows, by_columns, [&](Index i, Index picture, int a, int b) {
    dx[i] = over_windows(rows, columns, picture, a, b, [&](Index window, int r, int c) {
      return dy[window] / (rows.length(r) * columns.length(c));
    });
  });
}
