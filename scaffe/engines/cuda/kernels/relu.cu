// Rectified linear units. The backward pass may read y for x: both have the same sign.
KERNEL relu(Index count, const float* x, float* y, float slope) {
  EACH(i, count) {
    float value = x[i];
    y[i] = value > 0 || value != value ? value : slope != 0 ? slope * value : 0.0f;
  }
}

KERNEL relu_back(Index count, const float* x, const float* dy, float* dx, float slope) {
  EACH(i, count) dx[i] = x[i] > 0 ? dy[i] : slope != 0 ? slope * dy[i] : dy[i] * 0.0f;
}
