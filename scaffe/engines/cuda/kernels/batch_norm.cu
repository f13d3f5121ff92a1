// Batch normalisation of x (outer x channels x inner); statistics and backward have a block for each channel.
#define OF_CHANNEL(j)                                                           \
  for (Index k = threadIdx.x, n = (Index)outer * inner, j; k < n; k += blockDim.x) \
    if (j = (k / inner * channels + blockIdx.x) * inner + k % inner, true)

// Also let the running sums fade by `fraction` and take in what was measured, the variance without its bias.
KERNEL norm_statistics(const float* x, float* mean, float* deviation, float* means, float* variances, float* weight,
                       int outer, int channels, int inner, float eps, float fraction) {
  float sum = 0, squares = 0, count = (float)outer * inner;
  OF_CHANNEL(j) sum += x[j];
  float centre = over_block<Sum>(sum) / count;
  OF_CHANNEL(j) squares += (x[j] - centre) * (x[j] - centre);
  float variance = over_block<Sum>(squares) / count;
  if (threadIdx.x > 0) return;
  mean[blockIdx.x] = centre;
  deviation[blockIdx.x] = sqrtf(variance + eps);
  means[blockIdx.x] = means[blockIdx.x] * fraction + centre;
  variances[blockIdx.x] = variances[blockIdx.x] * fraction + variance * (count > 1 ? count / (count - 1) : 1.0f);
  if (blockIdx.x == 0) *weight = *weight * fraction + 1;
}

// What the running sums say, 0 before there are any.
KERNEL known_statistics(Index count, const float* means, const float* variances, const float* weight, float* mean,
                        float* deviation, float eps) {
  float scale = *weight == 0 ? 0.0f : 1 / *weight;
  EACH(c, count) mean[c] = means[c] * scale, deviation[c] = sqrtf(variances[c] * scale + eps);
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
