// Sums, products and maxima of bottoms: the first two in one launch, then one launch for each further bottom. `winner`
// is the index of the bottom that has the maximum.
KERNEL eltwise_sum(Index count, const float* a, float of_a, const float* b, float of_b, float* y) {
  combine(count, a, b, y, [=](float p, float q) { return of_a * p + of_b * q; });
}

KERNEL eltwise_product(Index count, const float* a, const float* b, float* y) {
  combine(count, a, b, y, [](float p, float q) { return p * q; });
}

KERNEL eltwise_max(Index count, const float* a, const float* b, float* y, int* winner) {
  Fours fours = {count, for_quads(a) && for_quads(b) && for_quads(y) && for_quads(winner)};
  EACH(q, fours.size()) {
    Quad first = fours.read(a, q), second = fours.read(b, q);
    Four<int> winners;
    for (int k = 0; k < 4; k++) {
      winners.at[k] = first.at[k] > second.at[k] ? 0 : 1;
      first.at[k] = first.at[k] > second.at[k] ? first.at[k] : second.at[k];
    }
    fours.write(winner, q, winners);
    fours.write(y, q, first);
  }
}

KERNEL eltwise_max_next(Index count, const float* x, int number, float* y, int* winner) {
  Fours fours = {count, for_quads(x) && for_quads(y) && for_quads(winner)};
  EACH(q, fours.size()) {
    Quad next = fours.read(x, q), most = fours.read(y, q);
    Four<int> winners = fours.read(winner, q);
    for (int k = 0; k < 4; k++)
      if (next.at[k] > most.at[k]) most.at[k] = next.at[k], winners.at[k] = number;
    fours.write(winner, q, winners);
    fours.write(y, q, most);
  }
}

KERNEL eltwise_max_back(Index count, const float* dy, const int* winner, int number, float* dx) {
  Fours fours = {count, for_quads(dy) && for_quads(winner) && for_quads(dx)};
  EACH(q, fours.size()) {
    Quad gradients = fours.read(dy, q);
    Four<int> winners = fours.read(winner, q);
    for (int k = 0; k < 4; k++) gradients.at[k] = winners.at[k] == number ? gradients.at[k] : 0.0f;
    fours.write(dx, q, gradients);
  }
}

// The gradients of both bottoms of a sum whose top a ReLU has rectified: dy where the top y is above 0.
KERNEL sum_back_unrectified(Index count, const float* y, const float* dy, float* first, float* second) {
  Fours fours = {count, for_quads(y) && for_quads(dy) && for_quads(first) && for_quads(second)};
  EACH(q, fours.size()) {
    Quad values = fours.read(y, q), gradients = fours.read(dy, q);
    for (int k = 0; k < 4; k++) gradients.at[k] = values.at[k] > 0 ? gradients.at[k] : 0.0f;
    fours.write(first, q, gradients);
    fours.write(second, q, gradients);
  }
}
