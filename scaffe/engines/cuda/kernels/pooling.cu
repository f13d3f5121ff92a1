// Pooling of pictures (H x W): a thread for each window forward, for each pixel backward, so that nothing is added twice
// or in another order. Windows are cut off at the edge; the mean counts the padding but nothing beyond it.
struct Axis {
  int size, out, kernel, stride, pad;
  __device__ int begin(int i) const { return i * stride - pad; }
  __device__ int first(int i) const { return begin(i) < 0 ? 0 : begin(i); }
  __device__ int last(int i) const { return begin(i) + kernel < size ? begin(i) + kernel : size; }
  __device__ int length(int i) const { return (begin(i) + kernel < size + pad ? begin(i) + kernel : size + pad) - begin(i); }
  // The windows that a pixel lies in: from one to before the other.
  __device__ int from(int p) const { return p + pad < kernel ? 0 : (p + pad - kernel) / stride + 1; }
  __device__ int to(int p) const { return (p + pad) / stride + 1 < out ? (p + pad) / stride + 1 : out; }
};

#define AXES int h, int oh, int kh, int sh, int ph, int w, int ow, int kw, int sw, int pw
#define ROWS_COLUMNS Axis rows = {h, oh, kh, sh, ph}, columns = {w, ow, kw, sw, pw}

KERNEL pool_max(Index count, const float* x, float* y, int* winner, AXES) {
  ROWS_COLUMNS;
  EACH(i, count) {
    int c = i % ow, r = i / ow % oh;
    const float* picture = x + i / ow / oh * h * w;
    float best = -infinity();
    int place = rows.first(r) * w + columns.first(c);
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) {
        float value = picture[a * w + b];
        if (value > best || value != value) best = value, place = a * w + b;
      }
    y[i] = best;
    winner[i] = place;
  }
}

KERNEL pool_max_back(Index count, const float* dy, const int* winner, float* dx, AXES) {
  ROWS_COLUMNS;
  EACH(i, count) {
    int b = i % w, a = i / w % h;
    Index picture = i / w / h * oh * ow;
    float sum = 0;
    for (int r = rows.from(a); r < rows.to(a); r++)
      for (int c = columns.from(b); c < columns.to(b); c++) {
        Index window = picture + r * ow + c;
        if (winner[window] == a * w + b) sum += dy[window];
      }
    dx[i] = sum;
  }
}

KERNEL pool_mean(Index count, const float* x, float* y, AXES) {
  ROWS_COLUMNS;
  EACH(i, count) {
    int c = i % ow, r = i / ow % oh;
    const float* picture = x + i / ow / oh * h * w;
    float sum = 0;
    for (int a = rows.first(r); a < rows.last(r); a++)
      for (int b = columns.first(c); b < columns.last(c); b++) sum += picture[a * w + b];
    y[i] = sum / (rows.length(r) * columns.length(c));
  }
}

KERNEL pool_mean_back(Index count, const float* dy, float* dx, AXES) {
  ROWS_COLUMNS;
  EACH(i, count) {
    int b = i % w, a = i / w % h;
    Index picture = i / w / h * oh * ow;
    float sum = 0;
    for (int r = rows.from(a); r < rows.to(a); r++)
      for (int c = columns.from(b); c < columns.to(b); c++)
        sum += dy[picture + r * ow + c] / (rows.length(r) * columns.length(c));
    dx[i] = sum;
  }
}
