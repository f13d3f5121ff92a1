// Sums, products and maxima of bottoms: the first two in one launch, then one launch for each further bottom. `winner`
// is the index of the bottom that has the maximum.
template <class Op>
__device__ void combine(Index count, const float* a, const float* b, float* y, Op op) {
  Index quads = for_quads(a) && for_quads(b) && for_quads(y) ? count / 4 : 0;
  EACH(i, quads) {
    Quad first = ((const Quad*)a)[i], second = ((const Quad*)b)[i];
    for (int k = 0; k < 4; k++) first.at[k] = op(first.at[k], second.at[k]);
    ((Quad*)y)[i] = first;
  }
  EACH(i, count - 4 * quads) y[4 * quads + i] = op(a[4 * quads + i], b[4 * quads + i]);
}

KERNEL eltwise_sum(Index count, const float* a, float of_a, const float* b, float of_b, float* y) {
  combine(count, a, b, y, [=](float p, float q) { return of_a * p + of_b * q; });
}

KERNEL eltwise_product(Index count, const float* a, const float* b, float* y) {
  combine(count, a, b, y, [](float p, float q) { return p * q; });
}

KERNEL eltwise_max(Index count, const float* a, const float* b, float* y, int* winner) {
  EACH(i, count) {
    winner[i] = a[i] > b[i] ? 0 : 1;
    y[i] = a[i] > b[i] ? a[i] : b[i];
  }
}

KERNEL eltwise_max_next(Index count, const float* x, int number, float* y, int* winner) {
  EACH(i, count) if (x[i] > y[i]) y[i] = x[i], winner[i] = number;
}

KERNEL eltwise_max_back(Index count, const float* dy, const int* winner, int number, float* dx) {
  EACH(i, count) dx[i] = winner[i] == number ? dy[i] : 0.0f;
}
