// Rectified linear units. The backward pass may read y for x: both have the same sign.
KERNEL relu(Index count, const float* x, float* y, float slope) {
  map(count, x, y, [=](float value) { return value > 0 || value != value ? value : slope != 0 ? slope * value : 0.0f; });
}

KERNEL relu_back(Index count, const float* x, const float* dy, float* dx, float slope) {
  combine(count, x, dy, dx, [=](float value, float gradient) {
    return value > 0 ? gradient : slope != 0 ? slope * gradient : gradient * 0.0f;
  });
}
