// Batch normalisation of x (outer x channels x inner); statistics and backward have a block for each channel.
#define OF_CHANNEL(j)                                                           \
  for (Index k = threadIdx.x, n = (Index)outer * inner, j; k < n; k += blockDim.x) \
    if (j = (k / inner * channels + blockIdx.x) * inner + k % inner, true)

KERNEL norm_statistics(const float* x, float* mean, float* variance, int outer, int channels, int inner) {
  float sum = 0, squares = 0, count = (float)outer * inner;
  OF_CHANNEL(j) sum += x[j];
  float centre = over_block<Sum>(sum) / count;
  OF_CHANNEL(j) squares += (x[j] - centre) * (x[j] - centre);
  squares = over_block<Sum>(squares);
  if (threadIdx.x == 0) mean[blockIdx.x] = centre, variance[blockIdx.x] = squares / count;
}

KERNEL normalise(Index count, const float* x, const float* mean, const float* deviation, float* kept, float* y,
                 int channels, int inner) {
  EACH(i, count) {
    int c = i / inner % channels;
    y[i] = kept[i] = (x[i] - mean[c]) / deviation[c];
  }
}

KERNEL normalise_back(const float* kept, const float* dy, const float* deviation, float* dx, int outer, int channels,
                      int inner) {
  float sum = 0, slope = 0, count = (float)outer * inner;
  OF_CHANNEL(j) sum += dy[j], slope += dy[j] * kept[j];
  sum = over_block<Sum>(sum) / count;
  slope = over_block<Sum>(slope) / count;
  OF_CHANNEL(j) dx[j] = (dy[j] - sum - kept[j] * slope) / deviation[blockIdx.x];
}
