// Rectified linear units. The backward pass may read y for x: both have the same sign.
template <class T>
__device__ void rectify(Index count, const T* x, T* y, float slope) {
  map(count, x, y, [=](float value) { return value > 0 || value != value ? value : slope != 0 ? slope * value : 0.0f; });
}

template <class T>
__device__ void rectify_back(Index count, const T* x, const T* dy, T* dx, float slope) {
  combine(count, x, dy, dx, [=](float value, float gradient) {
    return value > 0 ? gradient : slope != 0 ? slope * gradient : gradient * 0.0f;
  });
}

KERNEL relu(Index count, const float* x, float* y, float slope) { rectify(count, x, y, slope); }
KERNEL relu_bf16(Index count, const bf16* x, bf16* y, float slope) { rectify(count, x, y, slope); }
KERNEL relu_back(Index count, const float* x, const float* dy, float* dx, float slope) {
  rectify_back(count, x, dy, dx, slope);
}
KERNEL relu_back_bf16(Index count, const bf16* x, const bf16* dy, bf16* dx, float slope) {
  rectify_back(count, x, dy, dx, slope);
}
