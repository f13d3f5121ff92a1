// Dropout with the random numbers of numpy's Philox: Philox4x64 with ten rounds (Salmon et al. 2011, section 3.3).
// A thread computes one step of the counter: 8 float32 numbers of a row. Each row begins with a new step.
#define STEP 8  // numbers

__device__ inline Four<word> philox(word counter, word key0, word key1) {
  word a = counter, b = 0, c = 0, d = 0;
  for (int round = 0; round < 10; round++) {
    word high0 = __umul64hi(0xD2E7470EE14C6C93ull, a), low0 = 0xD2E7470EE14C6C93ull * a;
    word high1 = __umul64hi(0xCA5A826395121157ull, c), low1 = 0xCA5A826395121157ull * c;
    a = high1 ^ b ^ key0, b = low1, c = high0 ^ d ^ key1, d = low0;
    key0 += 0x9E3779B97F4A7C15ull, key1 += 0xBB67AE8584CAA73Bull;
  }
  Four<word> result = {{a, b, c, d}};
  return result;
}

KERNEL set_key(Index count, word* key, word key0, word key1) {
  EACH(i, count) key[i] = i ? key1 : key0;
}

// The number `k` of a step, uniform in [0, 1).
__device__ inline float uniform(const Four<word>& drawn, int k) {
  unsigned half = (unsigned)(k % 2 ? drawn.at[k / 2] >> 32 : drawn.at[k / 2]);
  return (half >> 8) * (1.0f / 16777216.0f);
}

template <class T>
__device__ void drop(Index count, const T* x, T* y, const word* key, Index first_row, int per_row, int steps,
                     word by_steps, float ratio, float scale) {
  const int MANY = Packs<T>::MANY;
  bool aligned = per_row % MANY == 0 && for_quads(x) && for_quads(y);
  each_cell(count, steps, by_steps, [&](Index row, Index step) {
    Four<word> drawn = philox((first_row + row) * steps + step + 1, key[0], key[1]);
    Index begin = row * per_row + step * STEP;
    int length = per_row - step * STEP < STEP ? per_row - step * STEP : STEP;
#pragma unroll
    for (int first = 0; first < STEP; first += MANY) {
      Packs<T> packs = {length - first, aligned};
      if (packs.count <= 0) return;
      Pack<T> values = packs.read(x + begin + first, 0);
#pragma unroll
      for (int k = 0; k < MANY; k++)
        values.set(k, values.get(k) * ((uniform(drawn, first + k) >= ratio ? 1.0f : 0.0f) * scale));
      packs.write(y + begin + first, 0, values);
    }
  });
}

KERNEL dropout(Index count, const float* x, float* y, const word* key, Index first_row, int per_row, int steps,
               word by_steps, float ratio, float scale) {
  drop(count, x, y, key, first_row, per_row, steps, by_steps, ratio, scale);
}
KERNEL dropout_bf16(Index count, const bf16* x, bf16* y, const word* key, Index first_row, int per_row, int steps,
                    word by_steps, float ratio, float scale) {
  drop(count, x, y, key, first_row, per_row, steps, by_steps, ratio, scale);
}
