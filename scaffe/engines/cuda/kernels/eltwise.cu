// Sums, products and maxima of bottoms, of float or bfloat16: the first two in one launch, then one launch for each
// further bottom. `winner` is the index of the bottom that has the maximum.
template <class T>
__device__ void most_of_two(Index count, const T* a, const T* b, T* y, int* winner) {
  Fours fours = {count, for_quads(a) && for_quads(b) && for_quads(y) && for_quads(winner)};
  EACH(q, fours.size()) {
    Quad first = fours.floats(a, q), second = fours.floats(b, q);
    Four<int> winners;
    for (int k = 0; k < 4; k++) {
      winners.at[k] = first.at[k] > second.at[k] ? 0 : 1;
      first.at[k] = first.at[k] > second.at[k] ? first.at[k] : second.at[k];
    }
    fours.write(winner, q, winners);
    fours.put(y, q, first);
  }
}

template <class T>
__device__ void most_with_next(Index count, const T* x, int number, T* y, int* winner) {
  Fours fours = {count, for_quads(x) && for_quads(y) && for_quads(winner)};
  EACH(q, fours.size()) {
    Quad next = fours.floats(x, q), most = fours.floats(y, q);
    Four<int> winners = fours.read(winner, q);
    for (int k = 0; k < 4; k++)
      if (next.at[k] > most.at[k]) most.at[k] = next.at[k], winners.at[k] = number;
    fours.write(winner, q, winners);
    fours.put(y, q, most);
  }
}

template <class T>
__device__ void to_the_most(Index count, const T* dy, const int* winner, int number, T* dx) {
  Fours fours = {count, for_quads(dy) && for_quads(winner) && for_quads(dx)};
  EACH(q, fours.size()) {
    Quad gradients = fours.floats(dy, q);
    Four<int> winners = fours.read(winner, q);
    for (int k = 0; k < 4; k++) gradients.at[k] = winners.at[k] == number ? gradients.at[k] : 0.0f;
    fours.put(dx, q, gradients);
  }
}

// The gradients of both bottoms of a sum whose top a ReLU has rectified: dy where the top y is above 0.
template <class T>
__device__ void back_unrectified(Index count, const T* y, const T* dy, T* first, T* second) {
  Packs<T> packs = {count, for_quads(y) && for_quads(dy) && for_quads(first) && for_quads(second)};
  EACH(q, packs.size()) {
    Pack<T> values = packs.read(y, q), gradients = packs.read(dy, q);
#pragma unroll
    for (int k = 0; k < Packs<T>::MANY; k++) gradients.set(k, values.get(k) > 0 ? gradients.get(k) : 0.0f);
    packs.write(first, q, gradients);
    packs.write(second, q, gradients);
  }
}

#define ELTWISE(T, END)                                                                                 \
  KERNEL eltwise_sum##END(Index count, const T* a, float of_a, const T* b, float of_b, T* y) {          \
    combine(count, a, b, y, [=](float p, float q) { return of_a * p + of_b * q; });                     \
  }                                                                                                     \
  KERNEL eltwise_scaled##END(Index count, const T* x, float by, T* y) {                                 \
    map(count, x, y, [=](float value) { return by * value; });                                          \
  }                                                                                                     \
  KERNEL eltwise_product##END(Index count, const T* a, const T* b, T* y) {                              \
    combine(count, a, b, y, [](float p, float q) { return p * q; });                                    \
  }                                                                                                     \
  KERNEL eltwise_max##END(Index count, const T* a, const T* b, T* y, int* winner) {                     \
    most_of_two(count, a, b, y, winner);                                                                \
  }                                                                                                     \
  KERNEL eltwise_max_next##END(Index count, const T* x, int number, T* y, int* winner) {                \
    most_with_next(count, x, number, y, winner);                                                        \
  }                                                                                                     \
  KERNEL eltwise_max_back##END(Index count, const T* dy, const int* winner, int number, T* dx) {        \
    to_the_most(count, dy, winner, number, dx);                                                         \
  }                                                                                                     \
  KERNEL sum_back_unrectified##END(Index count, const T* y, const T* dy, T* first, T* second) {         \
    back_unrectified(count, y, dy, first, second);                                                      \
  }

ELTWISE(float, )
ELTWISE(bf16, _bf16)
