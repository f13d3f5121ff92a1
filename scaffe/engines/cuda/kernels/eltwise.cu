// Bottoms added, multiplied or compared, a first pair and then one more at a time. `winner` says which was the largest.
KERNEL eltwise_sum(Index count, const float* a, float of_a, const float* b, float of_b, float* y) {
  EACH(i, count) y[i] = of_a * a[i] + of_b * b[i];
}

KERNEL eltwise_product(Index count, const float* a, const float* b, float* y) {
  EACH(i, count) y[i] = a[i] * b[i];
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
