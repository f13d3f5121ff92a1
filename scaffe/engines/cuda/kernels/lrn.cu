// Local response normalisation across channels of x (N x C x pixels): y = x scale^-beta, scale = k + alpha (sum of x^2
// over the channels that are at most `reach` away).
KERNEL lrn(Index count, const float* x, float* scale, float* power, float* y, int channels, int pixels, int reach,
           float alpha, float beta, float k) {
  EACH(i, count) {
    int c = i / pixels % channels;
    float sum = 0;
    for (int d = -reach; d <= reach; d++)
      if (c + d >= 0 && c + d < channels) sum += x[i + d * (Index)pixels] * x[i + d * (Index)pixels];
    scale[i] = k + alpha * sum;
    power[i] = powf(scale[i], -beta);
    y[i] = x[i] * power[i];
  }
}

KERNEL lrn_back(Index count, const float* x, const float* scale, const float* power, const float* dy, float* dx,
                int channels, int pixels, int reach, float factor) {
  EACH(i, count) {
    int c = i / pixels % channels;
    float sum = 0;
    for (int d = -reach; d <= reach; d++)
      if (c + d >= 0 && c + d < channels) {
        Index j = i + d * (Index)pixels;
        sum += dy[j] * power[j] * x[j] / scale[j];
      }
    dx[i] = dy[i] * power[i] - factor * x[i] * sum;
  }
}
