// Maps channels last (rows x channels): sums over the rows, a bias per channel; and rounding to bfloat16.
//
// Sums: `lanes` threads side by side read N channels each of one row, and a block as many rows at once as it has threads
// for. Each row of the grid sums its part of the rows into a row of `sums`, or adds that to it. `read` returns a pack by
// its place.
template <class T, int N, class Read>
__device__ void over_block_rows(Read read, float* sums, Index rows, int channels, int lanes, int add) {
  __shared__ float of_rows[N][THREADS];
  int own = threadIdx.x / lanes, lane = threadIdx.x - own * lanes, together = THREADS / lanes;
  int group = blockIdx.x * lanes + lane, groups = channels / N;
  Index first = rows * blockIdx.y / gridDim.y, last = rows * (blockIdx.y + 1) / gridDim.y;
  float sum[N] = {};
  if (group < groups && own < together)
#pragma unroll 4
    for (Index row = first + own; row < last; row += together) {
      Pack<T, N> pack = read(row * channels + group * N);
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] += pack.get(k);
    }
#pragma unroll
  for (int k = 0; k < N; k++) of_rows[k][threadIdx.x] = sum[k];
  __syncthreads();
  for (int left = together; left > 1;) {
    int half = (left + 1) / 2;
    if (own < left - half)
      for (int k = 0; k < N; k++) of_rows[k][threadIdx.x] += of_rows[k][threadIdx.x + half * lanes];
    left = half;
    __syncthreads();
  }
  if (threadIdx.x >= lanes || group >= groups) return;
  float* row = sums + blockIdx.y * (Index)channels + group * N;
  for (int k = 0; k < N; k++) row[k] = of_rows[k][threadIdx.x] + (add ? row[k] : 0.0f);
}

template <class T, int N>
__device__ Pack<T, N> pack_at(const T* maps, Index place) {
  return *(const Pack<T, N>*)(maps + place);
}

// The gradient of a ReLU's bottom in place of that of its top, where the top y is not above 0; and the sums of it.
template <class T, int N>
__device__ Pack<T, N> unrectify(const T* y, T* dy, Index place) {
  Pack<T, N> values = pack_at<T, N>(y, place), gradients = pack_at<T, N>(dy, place);
#pragma unroll
  for (int k = 0; k < N; k++) gradients.set(k, values.get(k) > 0 ? gradients.get(k) : gradients.get(k) * 0.0f);
  *(Pack<T, N>*)(dy + place) = gradients;
  return gradients;
}

#define ROW_SUMS(T, N, END)                                                                              \
  KERNEL row_sums##END(const T* maps, float* sums, Index rows, int channels, int lanes, int add) {       \
    auto read = [=](Index place) { return pack_at<T, N>(maps, place); };                                 \
    over_block_rows<T, N>(read, sums, rows, channels, lanes, add);                                       \
  }                                                                                                      \
  KERNEL unrectified_sums##END(const T* y, T* dy, float* sums, Index rows, int channels, int lanes) {    \
    auto read = [=](Index place) { return unrectify<T, N>(y, dy, place); };                              \
    over_block_rows<T, N>(read, sums, rows, channels, lanes, 0);                                         \
  }
ROW_SUMS(float, 1, _1)
ROW_SUMS(float, 4, _4)
ROW_SUMS(bf16, 1, _bf16_1)
ROW_SUMS(bf16, 8, _bf16_8)

// Add a bias, if there is one, and rectify the sums, if asked for. A thread takes N channels of a row, of which there
// are `groups`.
template <class T, int N>
__device__ void finish(Index count, T* maps, const float* bias, int groups, Divisor by_groups, int rectified) {
  EACH(i, count) {
    const float* own = bias ? bias + in_row(i, count, groups, by_groups) * N : 0;
    Pack<T, N> pack = ((Pack<T, N>*)maps)[i];
#pragma unroll
    for (int k = 0; k < N; k++) {
      float value = bias ? pack.get(k) + own[k] : pack.get(k);
      pack.set(k, rectified && value <= 0 ? 0.0f : value);
    }
    ((Pack<T, N>*)maps)[i] = pack;
  }
}

#define FINISH(T, N, END)                                                                             \
  KERNEL finish##END(Index count, T* maps, const float* bias, int groups, word by_groups, int rectified) { \
    finish<T, N>(count, maps, bias, groups, by_groups, rectified);                                    \
  }
FINISH(float, 1, _1)
FINISH(float, 4, _4)
FINISH(bf16, 1, _bf16_1)
FINISH(bf16, 8, _bf16_8)

// Numbers rounded to bfloat16, eight a thread.
KERNEL to_bf16(Index count, const float* x, bf16* y) {
  Packs<bf16> packs = {count, for_quads(y)};
  Packs<float> halves = {count, for_quads(x)};
  EACH(q, packs.size()) {
    Pack<float> first = halves.read(x, 2 * q), second = halves.read(x, 2 * q + 1);
    Pack<bf16> rounded;
#pragma unroll
    for (int k = 0; k < 4; k++) rounded.set(k, first.get(k)), rounded.set(4 + k, second.get(k));
    packs.write(y, q, rounded);
  }
}
