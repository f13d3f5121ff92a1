// Local response normalisation across channels of x (N x C x pixels): y = x scale^-beta, scale = k + alpha (sum of x^2
// over the channels at a distance of at most REACH). A thread computes RUN consecutive channels of one pixel with the
// window in registers, so that each value is read once. A row of the grid computes one run of channels of one image.
#define RUN 64

struct Run {
  Index base;  // offset of the pixel in channel 0 of its image
  int pixels, channels, begin, end;
  __device__ bool inside(int c) const { return c >= 0 && c < channels; }
  __device__ Index at(int c) const { return base + (Index)c * pixels; }
  __device__ float read(const float* array, int c) const { return inside(c) ? array[at(c)] : 0.0f; }
};

// The values of 2 REACH + 1 consecutive channels. A loop unrolled so often moves none of them.
template <int REACH>
struct Window {
  float at[2 * REACH + 1];
  __device__ Window() {
    for (int i = 0; i <= 2 * REACH; i++) at[i] = 0;
  }
  __device__ void push(float value) {
#pragma unroll
    for (int i = 0; i < 2 * REACH; i++) at[i] = at[i + 1];
    at[2 * REACH] = value;
  }
  __device__ float middle() const { return at[REACH]; }
  __device__ float sum() const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i <= 2 * REACH; i++) sum += at[i];
    return sum;
  }
};

template <int REACH, bool USUAL>
__device__ void forward(const Run& run, const float* __restrict__ x, float* __restrict__ y, float alpha, float beta,
                        float k) {
  Window<REACH> xs, squares;
  for (int c = run.begin - REACH; c < run.begin + REACH; c++) {
    float value = run.read(x, c);
    xs.push(value), squares.push(value * value);
  }
#pragma unroll(2 * REACH + 1)
  for (int c = run.begin; c < run.end; c++) {
    float value = run.read(x, c + REACH);
    xs.push(value), squares.push(value * value);
    y[run.at(c)] = xs.middle() * Powers<USUAL>(k + alpha * squares.sum(), beta).power;
  }
}

template <int REACH, bool USUAL>
__device__ void backward(const Run& run, const float* __restrict__ x, const float* __restrict__ dy,
                         float* __restrict__ dx, float alpha, float beta, float k, float factor) {
  Window<REACH> xs, squares, weighted, ratios;  // windows of x, of x^2, of dy scale^-beta, and of dy y / scale
  for (int c = run.begin - 2 * REACH; c < run.begin; c++) {
    float value = run.read(x, c);
    xs.push(value), squares.push(value * value);
  }
#pragma unroll(2 * REACH + 1)
  for (int c = run.begin - REACH; c < run.end + REACH; c++) {
    float value = run.read(x, c + REACH), gradient = run.read(dy, c);
    xs.push(value), squares.push(value * value);
    Powers<USUAL> of(k + alpha * squares.sum(), beta);
    float own = run.inside(c) ? gradient * of.power : 0.0f;
    weighted.push(own);
    ratios.push(run.inside(c) ? own * xs.middle() * of.inverse : 0.0f);
    int before = c - REACH;
    if (before >= run.begin) dx[run.at(before)] = weighted.middle() - factor * xs.at[0] * ratios.sum();
  }
}

// Call work(run) for the thread's pixel and each run of this row of the grid.
template <class Work>
__device__ void each_run(int pixels, int channels, int rows, Work work) {
  int runs = (channels + RUN - 1) / RUN, pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel < pixels)
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
      int begin = row % runs * RUN, end = begin + RUN < channels ? begin + RUN : channels;
      Run run = {row / runs * (Index)channels * pixels + pixel, pixels, channels, begin, end};
      work(run);
    }
}

#define LRN(REACH)                                                                                                   \
  KERNEL lrn_##REACH(const float* x, float* y, int pixels, int channels, int rows, float alpha, float beta, float k) { \
    each_run(pixels, channels, rows, [=](const Run& run) {                                                             \
      if (beta == 0.75f) forward<REACH, true>(run, x, y, alpha, beta, k);                                              \
      else forward<REACH, false>(run, x, y, alpha, beta, k);                                                           \
    });                                                                                                                \
  }                                                                                                                  \
  KERNEL lrn_back_##REACH(const float* x, const float* dy, float* dx, int pixels, int channels, int rows, float alpha, \
                          float beta, float k, float factor) {                                                       \
    each_run(pixels, channels, rows, [=](const Run& run) {                                                             \
      if (beta == 0.75f) backward<REACH, true>(run, x, dy, dx, alpha, beta, k, factor);                                \
      else backward<REACH, false>(run, x, dy, dx, alpha, beta, k, factor);                                             \
    });                                                                                                                \
  }

LRN(1)
LRN(2)
LRN(3)
LRN(4)
