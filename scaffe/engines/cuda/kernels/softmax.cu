// Softmax over the classes of (outer x classes x inner), one block per row; there are outer * inner rows.
KERNEL softmax(const float* scores, float* prob, int classes, int inner) {
  Index base = blockIdx.x / inner * (Index)classes * inner + blockIdx.x % inner;
  softmax_over_block(scores, prob, base, classes, inner);
}

KERNEL softmax_back(const float* y, const float* dy, float* dx, int classes, int inner) {
  Index base = blockIdx.x / inner * (Index)classes * inner + blockIdx.x % inner;
  float sum = 0;
  for (int c = threadIdx.x; c < classes; c += blockDim.x)
    sum += dy[base + c * (Index)inner] * y[base + c * (Index)inner];
  sum = over_block<Sum>(sum);
  for (int c = threadIdx.x; c < classes; c += blockDim.x)
    dx[base + c * (Index)inner] = (dy[base + c * (Index)inner] - sum) * y[base + c * (Index)inner];
}
